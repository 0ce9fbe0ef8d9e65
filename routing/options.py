"""The choices of an open clarification, in the order in which they are displayed."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field, field_validator

from routing.jobs import Option


class Source(StrEnum):
    """Where options were offered."""

    CHAT = "chat"
    WIDGET = "widget"


class OptionSet(BaseModel):
    """One set of options; its order is the displayed order, so that `first` means what the reader sees first."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    id: str = Field(min_length=1, max_length=200)
    source: Source
    options: tuple[Option, ...] = Field(default=(), max_length=50)
    fresh: bool = True
    """Whether the options can still be chosen; what was offered in an older state of the site cannot."""

    @field_validator("options")
    @classmethod
    def _ids_are_unique(cls, options: tuple[Option, ...]) -> tuple[Option, ...]:
        if len({option.id for option in options}) < len(options):
            raise ValueError("two options have the same id")
        return options

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids in displayed order."""
        return tuple(option.id for option in self.options)

    def get(self, option_id: str) -> Option | None:
        """Return the option with this id, or None when it is not in the set."""
        return next((option for option in self.options if option.id == option_id), None)

    def of_source(self, source: Source) -> OptionSet:
        """Return the set with the options of one source only."""
        options = tuple(option for option in self.options if option.source == source)
        return self.model_copy(update={"options": options, "source": source})

    def without(self, part: OptionSet) -> OptionSet | None:
        """Return what is left of a set of both sources once those of one are taken out; None when nothing is."""
        taken = set(part.ids)
        options = tuple(option for option in self.options if option.id not in taken)
        return self.model_copy(update={"options": options, "source": Source(options[0].source)}) if options else None

    def in_order(self, ids: tuple[str, ...]) -> OptionSet:
        """Return the same options with `ids` first, in that order; the others keep theirs. Unknown ids are left out."""
        by_id = {option.id: option for option in self.options}
        first = {option_id: by_id[option_id] for option_id in ids if option_id in by_id}
        return self.model_copy(update={"options": tuple((first | by_id).values())})
