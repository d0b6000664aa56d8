from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FrontMessage(_message.Message):
    __slots__ = ("ask", "abort")
    ASK_FIELD_NUMBER: _ClassVar[int]
    ABORT_FIELD_NUMBER: _ClassVar[int]
    ask: Ask
    abort: Abort
    def __init__(self, ask: _Optional[_Union[Ask, _Mapping]] = ..., abort: _Optional[_Union[Abort, _Mapping]] = ...) -> None: ...

class Ask(_message.Message):
    __slots__ = ("request_id", "tenant", "prompt", "max_tokens", "arrived_s", "admitted_s", "adapter", "temperature", "seed", "ignore_eos", "is_retry", "key_id", "queue_timeout_s", "deadline_s", "traceparent")
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
    def __init__(self, request_id: _Optional[str] = ..., tenant: _Optional[str] = ..., prompt: _Optional[_Iterable[int]] = ..., max_tokens: _Optional[int] = ..., arrived_s: _Optional[float] = ..., admitted_s: _Optional[float] = ..., adapter: _Optional[str] = ..., temperature: _Optional[float] = ..., seed: _Optional[int] = ..., ignore_eos: _Optional[bool] = ..., is_retry: _Optional[bool] = ..., key_id: _Optional[str] = ..., queue_timeout_s: _Optional[float] = ..., deadline_s: _Optional[float] = ..., traceparent: _Optional[str] = ...) -> None: ...

class Abort(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    def __init__(self, request_id: _Optional[str] = ...) -> None: ...

class WorkerMessage(_message.Message):
    __slots__ = ("tokens", "ended")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedCompositeFieldContainer[TokenOut]
    ended: _containers.RepeatedCompositeFieldContainer[Ended]
    def __init__(self, tokens: _Optional[_Iterable[_Union[TokenOut, _Mapping]]] = ..., ended: _Optional[_Iterable[_Union[Ended, _Mapping]]] = ...) -> None: ...

class TokenOut(_message.Message):
    __slots__ = ("request_id", "token")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    token: int
    def __init__(self, request_id: _Optional[str] = ..., token: _Optional[int] = ...) -> None: ...

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
    __slots__ = ("from_unix_s", "to_unix_s")
    FROM_UNIX_S_FIELD_NUMBER: _ClassVar[int]
    TO_UNIX_S_FIELD_NUMBER: _ClassVar[int]
    from_unix_s: float
    to_unix_s: float
    def __init__(self, from_unix_s: _Optional[float] = ..., to_unix_s: _Optional[float] = ...) -> None: ...

class RecentReply(_message.Message):
    __slots__ = ("metrics", "logs")
    METRICS_FIELD_NUMBER: _ClassVar[int]
    LOGS_FIELD_NUMBER: _ClassVar[int]
    metrics: _containers.RepeatedScalarFieldContainer[bytes]
    logs: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, metrics: _Optional[_Iterable[bytes]] = ..., logs: _Optional[_Iterable[bytes]] = ...) -> None: ...

class QueryRequest(_message.Message):
    __slots__ = ("name", "parameters")
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    parameters: _containers.MessageMap[str, Value]
    def __init__(self, name: _Optional[str] = ..., parameters: _Optional[_Mapping[str, Value]] = ...) -> None: ...

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
    __slots__ = ("columns", "rows", "partial")
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    columns: _containers.RepeatedScalarFieldContainer[str]
    rows: _containers.RepeatedCompositeFieldContainer[Row]
    partial: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, columns: _Optional[_Iterable[str]] = ..., rows: _Optional[_Iterable[_Union[Row, _Mapping]]] = ..., partial: _Optional[_Iterable[str]] = ...) -> None: ...

class InfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InfoReply(_message.Message):
    __slots__ = ("path", "pid", "batches", "rows", "refused_points", "last_ingest_unix_s")
    PATH_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_POINTS_FIELD_NUMBER: _ClassVar[int]
    LAST_INGEST_UNIX_S_FIELD_NUMBER: _ClassVar[int]
    path: str
    pid: int
    batches: int
    rows: int
    refused_points: int
    last_ingest_unix_s: float
    def __init__(self, path: _Optional[str] = ..., pid: _Optional[int] = ..., batches: _Optional[int] = ..., rows: _Optional[int] = ..., refused_points: _Optional[int] = ..., last_ingest_unix_s: _Optional[float] = ...) -> None: ...
