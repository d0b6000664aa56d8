from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FrontMessage(_message.Message):
    __slots__ = ("ask", "abort", "charges", "several")
    ASK_FIELD_NUMBER: _ClassVar[int]
    ABORT_FIELD_NUMBER: _ClassVar[int]
    CHARGES_FIELD_NUMBER: _ClassVar[int]
    SEVERAL_FIELD_NUMBER: _ClassVar[int]
    ask: Ask
    abort: Abort
    charges: Charges
    several: _containers.RepeatedCompositeFieldContainer[FrontMessage]
    def __init__(self, ask: _Optional[_Union[Ask, _Mapping]] = ..., abort: _Optional[_Union[Abort, _Mapping]] = ..., charges: _Optional[_Union[Charges, _Mapping]] = ..., several: _Optional[_Iterable[_Union[FrontMessage, _Mapping]]] = ...) -> None: ...

class Charges(_message.Message):
    __slots__ = ("tenants",)
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    tenants: _containers.RepeatedCompositeFieldContainer[TenantCharge]
    def __init__(self, tenants: _Optional[_Iterable[_Union[TenantCharge, _Mapping]]] = ...) -> None: ...

class TenantCharge(_message.Message):
    __slots__ = ("tenant", "service")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    service: float
    def __init__(self, tenant: _Optional[str] = ..., service: _Optional[float] = ...) -> None: ...

class Ask(_message.Message):
    __slots__ = ("request_id", "tenant", "prompt", "max_tokens", "arrived_s", "admitted_s", "adapter", "temperature", "seed", "ignore_eos", "is_retry", "key_id", "queue_timeout_s", "deadline_s", "traceparent", "top_p", "logprobs", "tell_waits", "counted_with", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ARRIVED_S_FIELD_NUMBER: _ClassVar[int]
    ADMITTED_S_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    IGNORE_EOS_FIELD_NUMBER: _ClassVar[int]
    IS_RETRY_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_S_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    TELL_WAITS_FIELD_NUMBER: _ClassVar[int]
    COUNTED_WITH_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    LOGIT_BIAS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    tenant: str
    prompt: _containers.RepeatedScalarFieldContainer[int]
    max_tokens: int
    arrived_s: float
    admitted_s: float
    adapter: str
    temperature: float
    seed: int
    ignore_eos: bool
    is_retry: bool
    key_id: str
    queue_timeout_s: float
    deadline_s: float
    traceparent: str
    top_p: float
    logprobs: int
    tell_waits: bool
    counted_with: str
    top_k: int
    min_p: float
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    logit_bias: _containers.RepeatedCompositeFieldContainer[LogitBias]
    def __init__(self, request_id: _Optional[str] = ..., tenant: _Optional[str] = ..., prompt: _Optional[_Iterable[int]] = ..., max_tokens: _Optional[int] = ..., arrived_s: _Optional[float] = ..., admitted_s: _Optional[float] = ..., adapter: _Optional[str] = ..., temperature: _Optional[float] = ..., seed: _Optional[int] = ..., ignore_eos: _Optional[bool] = ..., is_retry: _Optional[bool] = ..., key_id: _Optional[str] = ..., queue_timeout_s: _Optional[float] = ..., deadline_s: _Optional[float] = ..., traceparent: _Optional[str] = ..., top_p: _Optional[float] = ..., logprobs: _Optional[int] = ..., tell_waits: _Optional[bool] = ..., counted_with: _Optional[str] = ..., top_k: _Optional[int] = ..., min_p: _Optional[float] = ..., presence_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., repetition_penalty: _Optional[float] = ..., logit_bias: _Optional[_Iterable[_Union[LogitBias, _Mapping]]] = ...) -> None: ...

class LogitBias(_message.Message):
    __slots__ = ("token", "added")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    ADDED_FIELD_NUMBER: _ClassVar[int]
    token: int
    added: float
    def __init__(self, token: _Optional[int] = ..., added: _Optional[float] = ...) -> None: ...

class Abort(_message.Message):
    __slots__ = ("request_id", "complete")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    complete: bool
    def __init__(self, request_id: _Optional[str] = ..., complete: _Optional[bool] = ...) -> None: ...

class WorkerMessage(_message.Message):
    __slots__ = ("tokens", "ended", "charges")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    CHARGES_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedCompositeFieldContainer[TokenOut]
    ended: _containers.RepeatedCompositeFieldContainer[Ended]
    charges: Charges
    def __init__(self, tokens: _Optional[_Iterable[_Union[TokenOut, _Mapping]]] = ..., ended: _Optional[_Iterable[_Union[Ended, _Mapping]]] = ..., charges: _Optional[_Union[Charges, _Mapping]] = ...) -> None: ...

class TokenOut(_message.Message):
    __slots__ = ("request_id", "token", "logprob", "waits")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    token: int
    logprob: Logprob
    waits: FirstWaits
    def __init__(self, request_id: _Optional[str] = ..., token: _Optional[int] = ..., logprob: _Optional[_Union[Logprob, _Mapping]] = ..., waits: _Optional[_Union[FirstWaits, _Mapping]] = ...) -> None: ...

class Logprob(_message.Message):
    __slots__ = ("own", "tokens", "values")
    OWN_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    own: float
    tokens: _containers.RepeatedScalarFieldContainer[int]
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, own: _Optional[float] = ..., tokens: _Optional[_Iterable[int]] = ..., values: _Optional[_Iterable[float]] = ...) -> None: ...

class FirstWaits(_message.Message):
    __slots__ = ("slot", "budget", "kv", "adapter", "prefill")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    KV_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    PREFILL_FIELD_NUMBER: _ClassVar[int]
    slot: float
    budget: float
    kv: float
    adapter: float
    prefill: float
    def __init__(self, slot: _Optional[float] = ..., budget: _Optional[float] = ..., kv: _Optional[float] = ..., adapter: _Optional[float] = ..., prefill: _Optional[float] = ...) -> None: ...

class Ended(_message.Message):
    __slots__ = ("request_id", "outcome", "reason", "prompt_tokens", "output_tokens", "ttft_s", "computed_tokens")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TTFT_S_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    outcome: str
    reason: str
    prompt_tokens: int
    output_tokens: int
    ttft_s: float
    computed_tokens: int
    def __init__(self, request_id: _Optional[str] = ..., outcome: _Optional[str] = ..., reason: _Optional[str] = ..., prompt_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., ttft_s: _Optional[float] = ..., computed_tokens: _Optional[int] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("engine", "run_id", "pool", "policy", "policy_version", "running", "waiting", "last_token_age_s", "steps", "output_tokens", "now_s", "pages", "free_pages", "frozen", "adapter_pages")
    class AdapterPagesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    LAST_TOKEN_AGE_S_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NOW_S_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    FREE_PAGES_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_PAGES_FIELD_NUMBER: _ClassVar[int]
    engine: str
    run_id: str
    pool: str
    policy: str
    policy_version: int
    running: int
    waiting: int
    last_token_age_s: float
    steps: int
    output_tokens: int
    now_s: float
    pages: int
    free_pages: int
    frozen: bool
    adapter_pages: _containers.ScalarMap[str, int]
    def __init__(self, engine: _Optional[str] = ..., run_id: _Optional[str] = ..., pool: _Optional[str] = ..., policy: _Optional[str] = ..., policy_version: _Optional[int] = ..., running: _Optional[int] = ..., waiting: _Optional[int] = ..., last_token_age_s: _Optional[float] = ..., steps: _Optional[int] = ..., output_tokens: _Optional[int] = ..., now_s: _Optional[float] = ..., pages: _Optional[int] = ..., free_pages: _Optional[int] = ..., frozen: _Optional[bool] = ..., adapter_pages: _Optional[_Mapping[str, int]] = ...) -> None: ...

class SetPolicyRequest(_message.Message):
    __slots__ = ("policy", "who", "why", "if_version")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    WHO_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    IF_VERSION_FIELD_NUMBER: _ClassVar[int]
    policy: str
    who: str
    why: str
    if_version: int
    def __init__(self, policy: _Optional[str] = ..., who: _Optional[str] = ..., why: _Optional[str] = ..., if_version: _Optional[int] = ...) -> None: ...

class SetPolicyReply(_message.Message):
    __slots__ = ("version", "previous")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    version: int
    previous: str
    def __init__(self, version: _Optional[int] = ..., previous: _Optional[str] = ...) -> None: ...

class RecentRequest(_message.Message):
    __slots__ = ("from_unix_s", "to_unix_s", "after")
    FROM_UNIX_S_FIELD_NUMBER: _ClassVar[int]
    TO_UNIX_S_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    from_unix_s: float
    to_unix_s: float
    after: int
    def __init__(self, from_unix_s: _Optional[float] = ..., to_unix_s: _Optional[float] = ..., after: _Optional[int] = ...) -> None: ...

class RecentReply(_message.Message):
    __slots__ = ("metrics", "logs", "cursor", "more", "run_id")
    METRICS_FIELD_NUMBER: _ClassVar[int]
    LOGS_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    metrics: _containers.RepeatedScalarFieldContainer[bytes]
    logs: _containers.RepeatedScalarFieldContainer[bytes]
    cursor: int
    more: bool
    run_id: str
    def __init__(self, metrics: _Optional[_Iterable[bytes]] = ..., logs: _Optional[_Iterable[bytes]] = ..., cursor: _Optional[int] = ..., more: _Optional[bool] = ..., run_id: _Optional[str] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("sort", "ascending", "filter", "n", "every_s", "window_s")
    SORT_FIELD_NUMBER: _ClassVar[int]
    ASCENDING_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    EVERY_S_FIELD_NUMBER: _ClassVar[int]
    WINDOW_S_FIELD_NUMBER: _ClassVar[int]
    sort: str
    ascending: bool
    filter: str
    n: int
    every_s: float
    window_s: float
    def __init__(self, sort: _Optional[str] = ..., ascending: _Optional[bool] = ..., filter: _Optional[str] = ..., n: _Optional[int] = ..., every_s: _Optional[float] = ..., window_s: _Optional[float] = ...) -> None: ...

class WatchColumn(_message.Message):
    __slots__ = ("name", "unit", "kind", "meaning")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MEANING_FIELD_NUMBER: _ClassVar[int]
    name: str
    unit: str
    kind: str
    meaning: str
    def __init__(self, name: _Optional[str] = ..., unit: _Optional[str] = ..., kind: _Optional[str] = ..., meaning: _Optional[str] = ...) -> None: ...

class WatchRow(_message.Message):
    __slots__ = ("tenant", "values")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, tenant: _Optional[str] = ..., values: _Optional[_Iterable[float]] = ...) -> None: ...

class WatchPool(_message.Message):
    __slots__ = ("engine", "pool", "heard_age_s", "observed_s", "counted", "provisional", "tenants", "values")
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    HEARD_AGE_S_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_S_FIELD_NUMBER: _ClassVar[int]
    COUNTED_FIELD_NUMBER: _ClassVar[int]
    PROVISIONAL_FIELD_NUMBER: _ClassVar[int]
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    engine: str
    pool: str
    heard_age_s: float
    observed_s: float
    counted: bool
    provisional: bool
    tenants: int
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, engine: _Optional[str] = ..., pool: _Optional[str] = ..., heard_age_s: _Optional[float] = ..., observed_s: _Optional[float] = ..., counted: _Optional[bool] = ..., provisional: _Optional[bool] = ..., tenants: _Optional[int] = ..., values: _Optional[_Iterable[float]] = ...) -> None: ...

class WatchFrame(_message.Message):
    __slots__ = ("at_unix_s", "from_unix_s", "to_unix_s", "columns", "rows", "others", "others_tenants", "tenants", "matched", "pools", "provisional", "partial", "dropped")
    AT_UNIX_S_FIELD_NUMBER: _ClassVar[int]
    FROM_UNIX_S_FIELD_NUMBER: _ClassVar[int]
    TO_UNIX_S_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    OTHERS_TENANTS_FIELD_NUMBER: _ClassVar[int]
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    POOLS_FIELD_NUMBER: _ClassVar[int]
    PROVISIONAL_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    at_unix_s: float
    from_unix_s: float
    to_unix_s: float
    columns: _containers.RepeatedCompositeFieldContainer[WatchColumn]
    rows: _containers.RepeatedCompositeFieldContainer[WatchRow]
    others: WatchRow
    others_tenants: int
    tenants: int
    matched: int
    pools: _containers.RepeatedCompositeFieldContainer[WatchPool]
    provisional: bool
    partial: _containers.RepeatedScalarFieldContainer[str]
    dropped: int
    def __init__(self, at_unix_s: _Optional[float] = ..., from_unix_s: _Optional[float] = ..., to_unix_s: _Optional[float] = ..., columns: _Optional[_Iterable[_Union[WatchColumn, _Mapping]]] = ..., rows: _Optional[_Iterable[_Union[WatchRow, _Mapping]]] = ..., others: _Optional[_Union[WatchRow, _Mapping]] = ..., others_tenants: _Optional[int] = ..., tenants: _Optional[int] = ..., matched: _Optional[int] = ..., pools: _Optional[_Iterable[_Union[WatchPool, _Mapping]]] = ..., provisional: _Optional[bool] = ..., partial: _Optional[_Iterable[str]] = ..., dropped: _Optional[int] = ...) -> None: ...

class TailRequest(_message.Message):
    __slots__ = ("kinds", "tenants", "from_unix_s")
    KINDS_FIELD_NUMBER: _ClassVar[int]
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    FROM_UNIX_S_FIELD_NUMBER: _ClassVar[int]
    kinds: _containers.RepeatedScalarFieldContainer[str]
    tenants: _containers.RepeatedScalarFieldContainer[str]
    from_unix_s: float
    def __init__(self, kinds: _Optional[_Iterable[str]] = ..., tenants: _Optional[_Iterable[str]] = ..., from_unix_s: _Optional[float] = ...) -> None: ...

class TailRow(_message.Message):
    __slots__ = ("table", "row", "dropped")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    table: str
    row: Row
    dropped: int
    def __init__(self, table: _Optional[str] = ..., row: _Optional[_Union[Row, _Mapping]] = ..., dropped: _Optional[int] = ...) -> None: ...

class ExportWindowRequest(_message.Message):
    __slots__ = ("from_unix_s", "to_unix_s", "tables", "format")
    FROM_UNIX_S_FIELD_NUMBER: _ClassVar[int]
    TO_UNIX_S_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    from_unix_s: float
    to_unix_s: float
    tables: _containers.RepeatedScalarFieldContainer[str]
    format: str
    def __init__(self, from_unix_s: _Optional[float] = ..., to_unix_s: _Optional[float] = ..., tables: _Optional[_Iterable[str]] = ..., format: _Optional[str] = ...) -> None: ...

class ExportWindowChunk(_message.Message):
    __slots__ = ("rows", "partial", "file", "data", "last")
    class RowsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ROWS_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.ScalarMap[str, int]
    partial: _containers.RepeatedScalarFieldContainer[str]
    file: str
    data: bytes
    last: bool
    def __init__(self, rows: _Optional[_Mapping[str, int]] = ..., partial: _Optional[_Iterable[str]] = ..., file: _Optional[str] = ..., data: _Optional[bytes] = ..., last: _Optional[bool] = ...) -> None: ...

class QueryRequest(_message.Message):
    __slots__ = ("name", "parameters", "packed")
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    PACKED_FIELD_NUMBER: _ClassVar[int]
    name: str
    parameters: _containers.MessageMap[str, Value]
    packed: bool
    def __init__(self, name: _Optional[str] = ..., parameters: _Optional[_Mapping[str, Value]] = ..., packed: _Optional[bool] = ...) -> None: ...

class Value(_message.Message):
    __slots__ = ("null", "boolean", "integer", "number", "text", "integers")
    NULL_FIELD_NUMBER: _ClassVar[int]
    BOOLEAN_FIELD_NUMBER: _ClassVar[int]
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    INTEGERS_FIELD_NUMBER: _ClassVar[int]
    null: bool
    boolean: bool
    integer: int
    number: float
    text: str
    integers: IntegerList
    def __init__(self, null: _Optional[bool] = ..., boolean: _Optional[bool] = ..., integer: _Optional[int] = ..., number: _Optional[float] = ..., text: _Optional[str] = ..., integers: _Optional[_Union[IntegerList, _Mapping]] = ...) -> None: ...

class IntegerList(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, values: _Optional[_Iterable[int]] = ...) -> None: ...

class Row(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[Value]
    def __init__(self, values: _Optional[_Iterable[_Union[Value, _Mapping]]] = ...) -> None: ...

class QueryRows(_message.Message):
    __slots__ = ("columns", "rows", "partial", "packed_rows", "packed")
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    PACKED_ROWS_FIELD_NUMBER: _ClassVar[int]
    PACKED_FIELD_NUMBER: _ClassVar[int]
    columns: _containers.RepeatedScalarFieldContainer[str]
    rows: _containers.RepeatedCompositeFieldContainer[Row]
    partial: _containers.RepeatedScalarFieldContainer[str]
    packed_rows: int
    packed: _containers.RepeatedCompositeFieldContainer[PackedColumn]
    def __init__(self, columns: _Optional[_Iterable[str]] = ..., rows: _Optional[_Iterable[_Union[Row, _Mapping]]] = ..., partial: _Optional[_Iterable[str]] = ..., packed_rows: _Optional[int] = ..., packed: _Optional[_Iterable[_Union[PackedColumn, _Mapping]]] = ...) -> None: ...

class PackedColumn(_message.Message):
    __slots__ = ("same", "numbers", "integers", "texts", "lists", "mixed", "absent")
    SAME_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    INTEGERS_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    LISTS_FIELD_NUMBER: _ClassVar[int]
    MIXED_FIELD_NUMBER: _ClassVar[int]
    ABSENT_FIELD_NUMBER: _ClassVar[int]
    same: Value
    numbers: NumberList
    integers: IntegerList
    texts: TextList
    lists: ListList
    mixed: Row
    absent: bytes
    def __init__(self, same: _Optional[_Union[Value, _Mapping]] = ..., numbers: _Optional[_Union[NumberList, _Mapping]] = ..., integers: _Optional[_Union[IntegerList, _Mapping]] = ..., texts: _Optional[_Union[TextList, _Mapping]] = ..., lists: _Optional[_Union[ListList, _Mapping]] = ..., mixed: _Optional[_Union[Row, _Mapping]] = ..., absent: _Optional[bytes] = ...) -> None: ...

class NumberList(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, values: _Optional[_Iterable[float]] = ...) -> None: ...

class TextList(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, values: _Optional[_Iterable[str]] = ...) -> None: ...

class ListList(_message.Message):
    __slots__ = ("values", "lengths")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[int]
    lengths: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, values: _Optional[_Iterable[int]] = ..., lengths: _Optional[_Iterable[int]] = ...) -> None: ...

class InfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InfoReply(_message.Message):
    __slots__ = ("path", "pid", "batches", "rows", "refused_points", "last_ingest_unix_s", "unknown_points", "repeated_points", "baseline_points")
    PATH_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_POINTS_FIELD_NUMBER: _ClassVar[int]
    LAST_INGEST_UNIX_S_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_POINTS_FIELD_NUMBER: _ClassVar[int]
    REPEATED_POINTS_FIELD_NUMBER: _ClassVar[int]
    BASELINE_POINTS_FIELD_NUMBER: _ClassVar[int]
    path: str
    pid: int
    batches: int
    rows: int
    refused_points: int
    last_ingest_unix_s: float
    unknown_points: int
    repeated_points: int
    baseline_points: int
    def __init__(self, path: _Optional[str] = ..., pid: _Optional[int] = ..., batches: _Optional[int] = ..., rows: _Optional[int] = ..., refused_points: _Optional[int] = ..., last_ingest_unix_s: _Optional[float] = ..., unknown_points: _Optional[int] = ..., repeated_points: _Optional[int] = ..., baseline_points: _Optional[int] = ...) -> None: ...

class OperateRequest(_message.Message):
    __slots__ = ("who", "why", "what", "dry_run", "desired", "preempt_tenant", "abort_request", "reload_adapter", "look", "note", "tenant", "adapter", "at_unix_s", "is_told")
    WHO_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    DESIRED_FIELD_NUMBER: _ClassVar[int]
    PREEMPT_TENANT_FIELD_NUMBER: _ClassVar[int]
    ABORT_REQUEST_FIELD_NUMBER: _ClassVar[int]
    RELOAD_ADAPTER_FIELD_NUMBER: _ClassVar[int]
    LOOK_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    AT_UNIX_S_FIELD_NUMBER: _ClassVar[int]
    IS_TOLD_FIELD_NUMBER: _ClassVar[int]
    who: str
    why: str
    what: str
    dry_run: bool
    desired: Desired
    preempt_tenant: str
    abort_request: str
    reload_adapter: str
    look: str
    note: str
    tenant: str
    adapter: str
    at_unix_s: float
    is_told: bool
    def __init__(self, who: _Optional[str] = ..., why: _Optional[str] = ..., what: _Optional[str] = ..., dry_run: _Optional[bool] = ..., desired: _Optional[_Union[Desired, _Mapping]] = ..., preempt_tenant: _Optional[str] = ..., abort_request: _Optional[str] = ..., reload_adapter: _Optional[str] = ..., look: _Optional[str] = ..., note: _Optional[str] = ..., tenant: _Optional[str] = ..., adapter: _Optional[str] = ..., at_unix_s: _Optional[float] = ..., is_told: _Optional[bool] = ...) -> None: ...

class Desired(_message.Message):
    __slots__ = ("settings", "pinned", "lenient")
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    LENIENT_FIELD_NUMBER: _ClassVar[int]
    settings: str
    pinned: _containers.RepeatedScalarFieldContainer[str]
    lenient: bool
    def __init__(self, settings: _Optional[str] = ..., pinned: _Optional[_Iterable[str]] = ..., lenient: _Optional[bool] = ...) -> None: ...

class OperateReply(_message.Message):
    __slots__ = ("ok", "detail", "policy_version", "tenants", "adapters", "left_out")
    OK_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    ok: bool
    detail: str
    policy_version: int
    tenants: _containers.RepeatedCompositeFieldContainer[TenantNow]
    adapters: _containers.RepeatedCompositeFieldContainer[AdapterNow]
    left_out: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ok: _Optional[bool] = ..., detail: _Optional[str] = ..., policy_version: _Optional[int] = ..., tenants: _Optional[_Iterable[_Union[TenantNow, _Mapping]]] = ..., adapters: _Optional[_Iterable[_Union[AdapterNow, _Mapping]]] = ..., left_out: _Optional[_Iterable[str]] = ...) -> None: ...

class TenantNow(_message.Message):
    __slots__ = ("tenant", "running", "waiting")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    running: int
    waiting: int
    def __init__(self, tenant: _Optional[str] = ..., running: _Optional[int] = ..., waiting: _Optional[int] = ...) -> None: ...

class AdapterNow(_message.Message):
    __slots__ = ("name", "hash", "pages", "place", "pinned", "requests", "pool", "replica")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    name: str
    hash: str
    pages: int
    place: str
    pinned: bool
    requests: int
    pool: str
    replica: int
    def __init__(self, name: _Optional[str] = ..., hash: _Optional[str] = ..., pages: _Optional[int] = ..., place: _Optional[str] = ..., pinned: _Optional[bool] = ..., requests: _Optional[int] = ..., pool: _Optional[str] = ..., replica: _Optional[int] = ...) -> None: ...

class Act(_message.Message):
    __slots__ = ("who", "why", "if_version", "ttl_s", "permanent", "dry_run", "engine", "pool")
    WHO_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    IF_VERSION_FIELD_NUMBER: _ClassVar[int]
    TTL_S_FIELD_NUMBER: _ClassVar[int]
    PERMANENT_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    who: str
    why: str
    if_version: int
    ttl_s: float
    permanent: bool
    dry_run: bool
    engine: str
    pool: str
    def __init__(self, who: _Optional[str] = ..., why: _Optional[str] = ..., if_version: _Optional[int] = ..., ttl_s: _Optional[float] = ..., permanent: _Optional[bool] = ..., dry_run: _Optional[bool] = ..., engine: _Optional[str] = ..., pool: _Optional[str] = ...) -> None: ...

class SetTenantRequest(_message.Message):
    __slots__ = ("act", "tenant", "values")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ACT_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    act: Act
    tenant: str
    values: _containers.ScalarMap[str, str]
    def __init__(self, act: _Optional[_Union[Act, _Mapping]] = ..., tenant: _Optional[str] = ..., values: _Optional[_Mapping[str, str]] = ...) -> None: ...

class AdminTenantRequest(_message.Message):
    __slots__ = ("act", "tenant")
    ACT_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    act: Act
    tenant: str
    def __init__(self, act: _Optional[_Union[Act, _Mapping]] = ..., tenant: _Optional[str] = ...) -> None: ...

class AdminMoveRequest(_message.Message):
    __slots__ = ("act", "tenant", "pool")
    ACT_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    act: Act
    tenant: str
    pool: str
    def __init__(self, act: _Optional[_Union[Act, _Mapping]] = ..., tenant: _Optional[str] = ..., pool: _Optional[str] = ...) -> None: ...

class AdminAdapterRequest(_message.Message):
    __slots__ = ("act", "adapter", "folder", "tenants")
    ACT_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    act: Act
    adapter: str
    folder: str
    tenants: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, act: _Optional[_Union[Act, _Mapping]] = ..., adapter: _Optional[str] = ..., folder: _Optional[str] = ..., tenants: _Optional[_Iterable[str]] = ...) -> None: ...

class AdminAbortRequest(_message.Message):
    __slots__ = ("act", "request_id")
    ACT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    act: Act
    request_id: str
    def __init__(self, act: _Optional[_Union[Act, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...

class AdminPolicyRequest(_message.Message):
    __slots__ = ("act", "policy")
    ACT_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    act: Act
    policy: str
    def __init__(self, act: _Optional[_Union[Act, _Mapping]] = ..., policy: _Optional[str] = ...) -> None: ...

class AdminReloadRequest(_message.Message):
    __slots__ = ("act", "allow_lifts")
    ACT_FIELD_NUMBER: _ClassVar[int]
    ALLOW_LIFTS_FIELD_NUMBER: _ClassVar[int]
    act: Act
    allow_lifts: bool
    def __init__(self, act: _Optional[_Union[Act, _Mapping]] = ..., allow_lifts: _Optional[bool] = ...) -> None: ...

class AdminUndoRequest(_message.Message):
    __slots__ = ("act",)
    ACT_FIELD_NUMBER: _ClassVar[int]
    act: Act
    def __init__(self, act: _Optional[_Union[Act, _Mapping]] = ...) -> None: ...

class AdminReply(_message.Message):
    __slots__ = ("version", "dry_run", "effect", "until_unix_s", "results", "workers")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    UNTIL_UNIX_S_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    version: int
    dry_run: bool
    effect: str
    until_unix_s: float
    results: _containers.RepeatedCompositeFieldContainer[EngineResult]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerResult]
    def __init__(self, version: _Optional[int] = ..., dry_run: _Optional[bool] = ..., effect: _Optional[str] = ..., until_unix_s: _Optional[float] = ..., results: _Optional[_Iterable[_Union[EngineResult, _Mapping]]] = ..., workers: _Optional[_Iterable[_Union[WorkerResult, _Mapping]]] = ...) -> None: ...

class EngineResult(_message.Message):
    __slots__ = ("engine", "pool", "ok", "detail")
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    OK_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    engine: str
    pool: str
    ok: bool
    detail: str
    def __init__(self, engine: _Optional[str] = ..., pool: _Optional[str] = ..., ok: _Optional[bool] = ..., detail: _Optional[str] = ...) -> None: ...

class WorkerResult(_message.Message):
    __slots__ = ("pool", "replica", "ok", "detail", "owed")
    POOL_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    OK_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    OWED_FIELD_NUMBER: _ClassVar[int]
    pool: str
    replica: int
    ok: bool
    detail: str
    owed: bool
    def __init__(self, pool: _Optional[str] = ..., replica: _Optional[int] = ..., ok: _Optional[bool] = ..., detail: _Optional[str] = ..., owed: _Optional[bool] = ...) -> None: ...

class AdminShowRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AdminShowReply(_message.Message):
    __slots__ = ("engine", "pool", "version", "policy", "policy_version", "tenants", "adapters", "changes", "worker", "workers")
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    engine: str
    pool: str
    version: int
    policy: str
    policy_version: int
    tenants: _containers.RepeatedCompositeFieldContainer[AdminTenant]
    adapters: _containers.RepeatedCompositeFieldContainer[AdapterNow]
    changes: _containers.RepeatedCompositeFieldContainer[AdminChange]
    worker: str
    workers: _containers.RepeatedCompositeFieldContainer[WorkerNow]
    def __init__(self, engine: _Optional[str] = ..., pool: _Optional[str] = ..., version: _Optional[int] = ..., policy: _Optional[str] = ..., policy_version: _Optional[int] = ..., tenants: _Optional[_Iterable[_Union[AdminTenant, _Mapping]]] = ..., adapters: _Optional[_Iterable[_Union[AdapterNow, _Mapping]]] = ..., changes: _Optional[_Iterable[_Union[AdminChange, _Mapping]]] = ..., worker: _Optional[str] = ..., workers: _Optional[_Iterable[_Union[WorkerNow, _Mapping]]] = ...) -> None: ...

class WorkerNow(_message.Message):
    __slots__ = ("pool", "replica", "trouble", "owed", "policy_version", "running", "waiting")
    POOL_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    OWED_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    pool: str
    replica: int
    trouble: str
    owed: bool
    policy_version: int
    running: int
    waiting: int
    def __init__(self, pool: _Optional[str] = ..., replica: _Optional[int] = ..., trouble: _Optional[str] = ..., owed: _Optional[bool] = ..., policy_version: _Optional[int] = ..., running: _Optional[int] = ..., waiting: _Optional[int] = ...) -> None: ...

class AdminTenant(_message.Message):
    __slots__ = ("tenant", "rpm", "tpm", "concurrency", "weight", "tier", "rpm_left", "tpm_left", "under_way", "running", "waiting", "draining", "overridden", "adapters", "pool")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    RPM_FIELD_NUMBER: _ClassVar[int]
    TPM_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    RPM_LEFT_FIELD_NUMBER: _ClassVar[int]
    TPM_LEFT_FIELD_NUMBER: _ClassVar[int]
    UNDER_WAY_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    OVERRIDDEN_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    rpm: int
    tpm: int
    concurrency: int
    weight: float
    tier: int
    rpm_left: float
    tpm_left: float
    under_way: int
    running: int
    waiting: int
    draining: bool
    overridden: _containers.RepeatedScalarFieldContainer[str]
    adapters: _containers.RepeatedScalarFieldContainer[str]
    pool: str
    def __init__(self, tenant: _Optional[str] = ..., rpm: _Optional[int] = ..., tpm: _Optional[int] = ..., concurrency: _Optional[int] = ..., weight: _Optional[float] = ..., tier: _Optional[int] = ..., rpm_left: _Optional[float] = ..., tpm_left: _Optional[float] = ..., under_way: _Optional[int] = ..., running: _Optional[int] = ..., waiting: _Optional[int] = ..., draining: _Optional[bool] = ..., overridden: _Optional[_Iterable[str]] = ..., adapters: _Optional[_Iterable[str]] = ..., pool: _Optional[str] = ...) -> None: ...

class AdminChange(_message.Message):
    __slots__ = ("number", "at_unix_s", "until_unix_s", "who", "why", "what", "state", "ended_unix_s", "ended_by", "ended_why")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    AT_UNIX_S_FIELD_NUMBER: _ClassVar[int]
    UNTIL_UNIX_S_FIELD_NUMBER: _ClassVar[int]
    WHO_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ENDED_UNIX_S_FIELD_NUMBER: _ClassVar[int]
    ENDED_BY_FIELD_NUMBER: _ClassVar[int]
    ENDED_WHY_FIELD_NUMBER: _ClassVar[int]
    number: int
    at_unix_s: float
    until_unix_s: float
    who: str
    why: str
    what: str
    state: str
    ended_unix_s: float
    ended_by: str
    ended_why: str
    def __init__(self, number: _Optional[int] = ..., at_unix_s: _Optional[float] = ..., until_unix_s: _Optional[float] = ..., who: _Optional[str] = ..., why: _Optional[str] = ..., what: _Optional[str] = ..., state: _Optional[str] = ..., ended_unix_s: _Optional[float] = ..., ended_by: _Optional[str] = ..., ended_why: _Optional[str] = ...) -> None: ...
