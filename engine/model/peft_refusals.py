"""Why an `adapter_config.json` is not a plain LoRA's: other formats, other methods, variants.

Each has a sentence of its own that says what to do. Pure functions of the options; whoever calls
names the folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from engine.errors import AdapterError
from engine.model.adapter_folder import CONFIG_FILE, shown
from engine.model.made_adapters import SYNTHETIC_KEY

_PLAIN = "train a plain LoRA without it"
# Options that change the arithmetic, when they are set: what they make the adapter.
_VARIANTS: Mapping[str, str] = {
    "use_dora": "makes it DoRA, whose magnitudes are not computed here: merge it into the base "
    "model, or train without it",
    "alora_invocation_tokens": "makes it an activated LoRA (aLoRA), which acts only behind those "
    f"tokens; {_PLAIN}",
    "lora_bias": f"gives B a bias, which is not added here; {_PLAIN}",
    "modules_to_save": "means whole modules were trained beside the LoRA, and their weights would "
    f"be left out; {_PLAIN}",
    "trainable_token_indices": "means rows of the embedding were trained, and they would be left "
    f"out; {_PLAIN}",
    "target_parameters": "adapts parameters that are no linears (experts), which are not "
    f"supported; {_PLAIN}",
    "layer_replication": "means it was trained on a base model with layers repeated; serve that "
    "model, or train on this one",
    "fan_in_fan_out": "means its base model keeps weights transposed (GPT-2's Conv1D), which none "
    "that is served does; train it on this base model",
    "use_qalora": "makes it QA-LoRA, which pools its input; " + _PLAIN,
    "use_bdlora": "makes it block-diagonal (BD-LoRA); " + _PLAIN,
    "arrow_config": "makes it a router over several adapters (Arrow); name one of them",
    "kasa_config": "makes it KaSA, which changes the base model's weights; " + _PLAIN,
    "velora_config": "makes it VeLoRA, which is not supported; " + _PLAIN,
    "monteclora_config": "makes it MonteCLoRA, which samples its weights; " + _PLAIN,
    "enable_lora": "splits a linear in parts (early PEFT's MergedLinear); " + _PLAIN,
    "megatron_config": "means it was trained on Megatron's parallel linears; save it from the "
    "model in transformers' form",
}
# What PEFT subtracts from the base model's weights when it begins: the adapter fits only the rest.
_MUTATING = ("pissa", "olora", "corda", "loftq", "lora_ga")
_KINDS = {
    "ADALORA": "AdaLoRA, whose singular values are not computed here",
    "ADAPTION_PROMPT": "LLaMA-Adapter, which adds to the prompt",
    "IA3": "(IA)3, which scales activations",
    "LOHA": "LoHa, a product of two LoRAs",
    "LOKR": "LoKr, a Kronecker product",
    "OFT": "OFT, which rotates weights",
    "BOFT": "BOFT, which rotates weights",
    "PREFIX_TUNING": "prefix tuning, which adds to the KV cache",
    "PROMPT_TUNING": "prompt tuning, which adds to the prompt",
    "P_TUNING": "p-tuning, which adds to the prompt",
    "MULTITASK_PROMPT_TUNING": "prompt tuning, which adds to the prompt",
    "TRAINABLE_TOKENS": "trained rows of the embedding",
    "VERA": "VeRA, whose matrices are shared and random",
    "XLORA": "X-LoRA, a mixture of adapters",
}
# LoraConfig's fields that have no part in the arithmetic, or are read, or refused above.
_KNOWN = {
    "alpha_pattern", "auto_mapping", "base_model_name_or_path", "bias", "corda_config",
    "ensure_weight_tying", "eva_config", "exclude_modules", "inference_mode", "init_lora_weights",
    "layers_pattern", "layers_to_transform", "loftq_config", "lora_alpha", "lora_dropout",
    "lora_ga_config", "megatron_core", "merge_weights", "peft_type", "peft_version",
    "qalora_group_size", "r", "rank_pattern", "revision", "runtime_config", "target_modules",
    "task_type", "use_rslora",
    SYNTHETIC_KEY, *_VARIANTS,
}  # fmt: skip
_MOST_TOLD = 8  # unknown options that are named


def refuse_other_formats(options: Mapping[str, Any]) -> None:
    """Raises AdapterError for a file of the same name that is not PEFT's."""
    if "lora_parameters" in options or "fine_tune_type" in options:
        raise AdapterError(
            f"{CONFIG_FILE} is MLX's (it has lora_parameters): convert the adapter to PEFT's names "
            "and layout first"
        )
    if "peft_type" not in options and isinstance(options.get("config"), dict):
        raise AdapterError(
            f"{CONFIG_FILE} is AdapterHub's (it has config and no peft_type): train or convert the "
            "adapter with PEFT"
        )
    if (kind := options.get("peft_type")) != "LORA":
        what = _KINDS.get(kind) if isinstance(kind, str) else None
        raise AdapterError(
            f"peft_type is {shown(kind)}{f' ({what})' if what else ''}; only 'LORA' is served: "
            "train a LoRA, or merge this into the base model"
        )


def refuse_variants(options: Mapping[str, Any]) -> None:
    """Raises AdapterError for a LoRA that is not plain, or one for a changed base model."""
    for name, what in _VARIANTS.items():
        if options.get(name):
            raise AdapterError(f"{name} is {shown(options[name], 40)}: it {what}")
    if (bias := options.get("bias", "none")) not in ("none", None):
        raise AdapterError(
            f"bias is {shown(bias)}: the base model's biases were trained with it and would be "
            "left out; only 'none' is supported"
        )
    start = options.get("init_lora_weights", True)
    if isinstance(start, str) and start.lower().startswith(_MUTATING):
        raise AdapterError(
            f"init_lora_weights is {shown(start)}: training began by taking the adapter out of the "
            "base model's weights, so it does not fit the base model as it is; save it again with "
            "path_initial_model_for_weight_conversion, which makes it a plain LoRA"
        )
    for name, value in options.items():
        if name not in _KNOWN and value and _is_switch(name, value):
            raise AdapterError(
                f"{shown(name)} is {shown(value, 40)}, an option that is not known here and may "
                "change what the adapter computes; take it out of the file if it does not"
            )


def unknown_options(options: Mapping[str, Any]) -> Iterator[str]:
    """A warning for options that are set, unknown, and taken to have no part in the arithmetic."""
    names = sorted(n for n, v in options.items() if n not in _KNOWN and v)
    if names:
        more = f" and {len(names) - _MOST_TOLD} more" if len(names) > _MOST_TOLD else ""
        told = ", ".join(shown(n, 40) for n in names[:_MOST_TOLD])
        yield f"options that are not known here have no effect: {told}{more}"


def _is_switch(name: str, value: object) -> bool:
    """Variants of PEFT are switched on by `use_...` or by a table of their own."""
    return name.startswith("use_") or (isinstance(value, dict) and name.endswith("_config"))
