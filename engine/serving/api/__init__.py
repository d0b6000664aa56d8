"""The tenants' API as OpenAI's clients know it: bodies in, answers out, who may ask."""
