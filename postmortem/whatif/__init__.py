"""What would have prevented it, and how it would have been without somebody: by replay."""

from postmortem.whatif.answer import what_if
from postmortem.whatif.model import Counterfactual, WhatIf
from postmortem.whatif.options import Options
from postmortem.whatif.without import without_excess

__all__ = ["Counterfactual", "Options", "WhatIf", "what_if", "without_excess"]
