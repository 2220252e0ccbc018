"""include/avocet.h in ctypes: structures and functions, nothing else. tests/test_abi.py compares
every size and offset with what a C compiler says."""
import ctypes as c
import numbers

from ._arguments import shown

ERROR_TEXT_MAX = 1024
FLOATS = c.POINTER(c.c_float)
IDS = c.POINTER(c.c_int32)
TEXTS = c.POINTER(c.c_char_p)
Handle = c.c_void_p


RANGES = {kind: (-(1 << (8 * c.sizeof(kind) - 1)) if signed else 0,
                 (1 << (8 * c.sizeof(kind) - signed)) - 1)
          for kind, signed in ((c.c_int32, 1), (c.c_int64, 1), (c.c_uint32, 0), (c.c_uint64, 0),
                               (c.c_size_t, 0))}


def in_range(kind, name: str, value) -> int:
    """ctypes would cut what does not fit."""
    least, most = RANGES[kind]
    if isinstance(value, bool) or not isinstance(value, int) and not hasattr(value, "__index__"):
        raise TypeError(f"{name} is {value!r}, must be an integer")
    if not least <= value <= most:
        raise ValueError(f"{name} is {value}, must be {least} to {most}")
    return int(value)


def _fitting(kind, name: str, value):
    """What a field of this kind may get: ctypes would take numbers for addresses."""
    if kind in RANGES:
        return in_range(kind, name, value)
    if kind in (c.c_float, c.c_double) and (isinstance(value, bool) or
                                            not isinstance(value, numbers.Real)):
        raise TypeError(f"{name} must be a number, not {shown(value)}")
    if kind is c.c_char_p and not (value is None or isinstance(value, bytes)):
        raise TypeError(f"{name} must be a text, not {shown(value)}")
    return value


class Structure(c.Structure):
    """One that begins with its own size gets it filled in. Integers must fit their fields."""

    def __init__(self, **fields):
        for name, kind in self._fields_:
            if name in fields:
                fields[name] = _fitting(kind, name, fields[name])
        super().__init__(**fields)
        if self._fields_[0][0] == "size":
            self.size = c.sizeof(self)


class Error(Structure):
    _fields_ = [("status", c.c_int), ("text", c.c_char * ERROR_TEXT_MAX)]


PROGRESS = c.CFUNCTYPE(c.c_bool, c.c_void_p, c.c_char_p, c.c_uint64, c.c_uint64)
LOG = c.CFUNCTYPE(None, c.c_void_p, c.c_char_p)
WRITE = c.CFUNCTYPE(c.c_bool, c.c_void_p, c.c_void_p, c.c_size_t)
WANTED = c.CFUNCTYPE(c.c_bool, c.c_void_p)


class ModelOptions(Structure):
    _fields_ = [("size", c.c_size_t), ("allocator", c.c_void_p), ("progress", PROGRESS),
                ("progress_context", c.c_void_p), ("draft_of", Handle),
                ("panel_cache", c.c_char_p), ("panel_cache_bytes", c.c_uint64), ("log", LOG),
                ("log_context", c.c_void_p)]


class ModelInfo(Structure):
    _fields_ = [("size", c.c_size_t), ("architecture", c.c_char_p), ("format", c.c_char_p),
                ("layers", c.c_uint32), ("width", c.c_uint32), ("vocabulary", c.c_uint32),
                ("context", c.c_uint32), ("parameters", c.c_uint64), ("weight_bytes", c.c_uint64),
                ("token_begin", c.c_int32), ("has_tokenizer", c.c_bool),
                ("has_chat_template", c.c_bool)]


class Message(Structure):
    _fields_ = [("role", c.c_char_p), ("content", c.c_char_p)]


class ChatOptions(Structure):
    _fields_ = [("size", c.c_size_t), ("no_generation_prompt", c.c_bool), ("now", c.c_int64),
                ("variables", Handle)]


class EngineOptions(Structure):
    _fields_ = [("size", c.c_size_t), ("threads", c.c_uint32), ("context_max", c.c_uint32),
                ("sessions_max", c.c_uint32), ("rows_max", c.c_uint32),
                ("logits_max", c.c_uint32), ("kv_tokens", c.c_uint64), ("memory_max", c.c_uint64),
                ("rope_context", c.c_uint32), ("kv_type", c.c_char_p), ("device", c.c_char_p),
                ("huge_pages", c.c_char_p), ("numa", c.c_char_p), ("pin", c.c_char_p),
                ("lock", c.c_bool), ("log", LOG), ("log_context", c.c_void_p),
                ("adapter_rank_max", c.c_uint32), ("telemetry", Handle), ("streams", c.c_uint32),
                ("taps", c.POINTER(c.c_uint32)), ("tap_count", c.c_size_t),
                ("speculate", c.c_char_p), ("draft_tokens", c.c_uint32),
                ("draft_controller", c.c_char_p), ("draft_model", Handle),
                ("draft_heads", c.POINTER(Handle)), ("draft_heads_count", c.c_size_t),
                ("arithmetic", c.c_char_p), ("gpu_layers", c.c_char_p),
                ("kv_host_bytes", c.c_uint64)]


class Plan(Structure):
    _fields_ = [("size", c.c_size_t), ("weight_bytes", c.c_uint64), ("repack_bytes", c.c_uint64),
                ("kv_bytes", c.c_uint64), ("scratch_bytes", c.c_uint64),
                ("available_bytes", c.c_uint64), ("limit", c.c_char_p), ("threads", c.c_uint32),
                ("context_max", c.c_uint32), ("kv_pages", c.c_uint32),
                ("kv_page_tokens", c.c_uint32), ("kv_type", c.c_char_p), ("device", c.c_char_p),
                ("huge_pages", c.c_char_p), ("numa", c.c_char_p), ("pin", c.c_char_p),
                ("numa_nodes", c.c_uint32), ("lock", c.c_bool), ("device_from", c.c_char_p),
                ("session_bytes", c.c_uint64), ("streams", c.c_uint32),
                ("stream_bytes", c.c_uint64),
                ("device_kind", c.c_char_p), ("arithmetic", c.c_char_p), ("host_memory", c.c_bool),
                ("host_available_bytes", c.c_uint64), ("draft_bytes", c.c_uint64),
                ("arithmetic_why", c.c_char_p), ("cpu_layers", c.c_uint32),
                ("cpu_bytes", c.c_uint64), ("kv_host_bytes", c.c_uint64)]


class TelemetryOptions(Structure):
    _fields_ = [("size", c.c_size_t), ("spans_max", c.c_uint32), ("adapters_max", c.c_uint32),
                ("hardware", c.c_bool), ("model_name", c.c_char_p)]


class TraceReader(c.Structure):
    _fields_ = [("wanted", WANTED), ("write", WRITE),
                ("context", c.c_void_p)]


class AnswerTimes(Structure):
    _fields_ = [("size", c.c_size_t), ("model_name", c.c_char_p), ("finish", c.c_int),
                ("prompt_tokens", c.c_uint32), ("new_tokens", c.c_uint32),
                ("load_seconds", c.c_double), ("tokenize_seconds", c.c_double),
                ("prefill_seconds", c.c_double), ("first_token_seconds", c.c_double),
                ("prefill_rate", c.c_double), ("decode_rate", c.c_double),
                ("token_seconds", c.POINTER(c.c_double)), ("token_count", c.c_size_t)]


class GrammarOptions(Structure):
    _fields_ = [("size", c.c_size_t), ("trigger", c.c_char_p), ("json_or_text", c.c_bool)]


class GrammarInfo(Structure):
    _fields_ = [("size", c.c_size_t), ("states", c.c_uint32), ("memory_bytes", c.c_uint64)]


class AdapterUse(Structure):
    _fields_ = [("adapter", Handle), ("weight", c.c_float)]


class SessionOptions(Structure):
    _fields_ = [("size", c.c_size_t), ("adapters", c.POINTER(AdapterUse)),
                ("adapter_count", c.c_size_t), ("cache_salt", c.c_char_p),
                ("ring_window", c.c_uint32), ("ring_keep", c.c_uint32)]


class KvInfo(Structure):
    _fields_ = [("size", c.c_size_t), ("page_tokens", c.c_uint32), ("pages", c.c_uint32),
                ("pages_free", c.c_uint32), ("pages_cached", c.c_uint32),
                ("pages_used", c.c_uint32), ("prefix_queried_tokens", c.c_uint64),
                ("prefix_hit_tokens", c.c_uint64), ("pages_host", c.c_uint32),
                ("pages_host_cached", c.c_uint32), ("pages_moved_out", c.c_uint64),
                ("pages_moved_in", c.c_uint64)]


class AdapterOptions(Structure):
    _fields_ = [("size", c.c_size_t), ("type", c.c_char_p)]


class AdapterInfo(Structure):
    _fields_ = [("size", c.c_size_t), ("path", c.c_char_p), ("method", c.c_char_p),
                ("type", c.c_char_p), ("digest", c.c_char * 33), ("modules_matched", c.c_uint32),
                ("modules_expected", c.c_uint32), ("rank_max", c.c_uint32),
                ("bytes", c.c_uint64), ("memory_bytes", c.c_uint64), ("idle", c.c_bool)]


class AdapterModule(Structure):
    _fields_ = [("size", c.c_size_t), ("name", c.c_char_p), ("kind", c.c_char_p),
                ("rank", c.c_uint32), ("scale", c.c_double), ("norm", c.c_double)]


class RegistryOptions(Structure):
    _fields_ = [("size", c.c_size_t), ("root", c.c_char_p), ("memory_max", c.c_uint64),
                ("type", c.c_char_p)]


class RegistryEntry(Structure):
    _fields_ = [("size", c.c_size_t), ("name", c.c_char_p), ("path", c.c_char_p),
                ("open", c.c_bool), ("pinned", c.c_bool), ("memory_bytes", c.c_uint64),
                ("users", c.c_uint32), ("version", c.c_uint64), ("digest", c.c_char * 33)]


REGISTRY_SEE = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(RegistryEntry))


class LogitBias(Structure):
    _fields_ = [("token", c.c_int32), ("bias", c.c_float)]


class Sampling(Structure):
    _fields_ = [("size", c.c_size_t), ("temperature", c.c_float), ("top_k", c.c_uint32),
                ("top_p", c.c_float), ("min_p", c.c_float), ("typical_p", c.c_float),
                ("repetition_penalty", c.c_float), ("presence_penalty", c.c_float),
                ("frequency_penalty", c.c_float), ("seed", c.c_uint64),
                ("bias", c.POINTER(LogitBias)), ("bias_count", c.c_size_t),
                ("top_logprobs", c.c_uint32)]

    def __init__(self, **fields):  # AVO_SAMPLING_INIT
        super().__init__(**{"top_p": 1.0, "typical_p": 1.0, "repetition_penalty": 1.0, **fields})


class Logprob(Structure):
    _fields_ = [("token", c.c_int32), ("logprob", c.c_float)]


class TokenEvent(Structure):
    _fields_ = [("token", c.c_int32), ("index", c.c_uint32), ("text", c.c_void_p),
                ("text_bytes", c.c_size_t), ("logprob", c.c_float), ("top", c.POINTER(Logprob)),
                ("top_count", c.c_uint32), ("drafted", c.c_bool)]


class SchedulerOptions(Structure):
    _fields_ = [("size", c.c_size_t), ("running_max", c.c_uint32), ("waiting_max", c.c_uint32),
                ("waiting_tokens_max", c.c_uint64), ("token_seconds", c.c_double),
                ("ageing_seconds", c.c_double), ("tokenizer_threads", c.c_uint32),
                ("no_prefix_cache", c.c_bool), ("registry", Handle),
                ("adapters_max", c.c_uint32), ("cores", c.c_char_p),
                ("prefill_threads", c.c_uint32), ("draft_corpus", c.c_char_p)]


class Result(Structure):
    _fields_ = [("size", c.c_size_t), ("finish", c.c_int), ("stop_token", c.c_int32),
                ("stop_index", c.c_int32), ("stop_string", c.c_char_p),
                ("prompt_tokens", c.c_uint32), ("reused_tokens", c.c_uint32),
                ("new_tokens", c.c_uint32), ("preemptions", c.c_uint32),
                ("queue_seconds", c.c_double), ("prefill_seconds", c.c_double),
                ("first_token_seconds", c.c_double), ("decode_seconds", c.c_double),
                ("total_seconds", c.c_double), ("embedding", c.POINTER(c.c_float)),
                ("embedding_width", c.c_uint32), ("drafted_tokens", c.c_uint32),
                ("accepted_tokens", c.c_uint32)]

    def __init__(self, **fields):  # AVO_RESULT_INIT
        super().__init__(**{"stop_token": -1, "stop_index": -1, **fields})


class Event(Structure):
    _fields_ = [("size", c.c_size_t), ("kind", c.c_int), ("request", c.c_uint64),
                ("index", c.c_size_t), ("token", c.POINTER(TokenEvent)),
                ("result", c.POINTER(Result)), ("error", c.POINTER(Error)),
                ("done", c.c_uint64), ("total", c.c_uint64)]


# avo_event_kind
EVENT_TOKEN, EVENT_FINISHED, EVENT_FAILED, EVENT_PROMPT, EVENT_PREFILL = range(5)
EVENT = c.CFUNCTYPE(c.c_bool, c.c_void_p, c.POINTER(Event))


class NamedAdapter(Structure):
    _fields_ = [("name", c.c_char_p), ("weight", c.c_float)]


class Repetition(Structure):
    _fields_ = [("pattern_min", c.c_uint32), ("pattern_max", c.c_uint32),
                ("count_min", c.c_uint32)]

    @classmethod
    def of(cls, repetition):
        least, most, times = repetition
        return cls(pattern_min=least, pattern_max=most, count_min=times)


class Request(Structure):
    _fields_ = [("size", c.c_size_t), ("tokens", IDS), ("token_count", c.c_size_t),
                ("messages", c.POINTER(Message)), ("message_count", c.c_size_t),
                ("chat", c.POINTER(ChatOptions)), ("text", c.c_char_p),
                ("text_flags", c.c_uint32), ("adapters", c.POINTER(AdapterUse)),
                ("adapter_count", c.c_size_t), ("named_adapters", c.POINTER(NamedAdapter)),
                ("named_adapter_count", c.c_size_t), ("max_new_tokens", c.c_uint32),
                ("sampling", c.POINTER(Sampling)), ("stop", TEXTS), ("stop_count", c.c_size_t),
                ("stop_tokens", IDS), ("stop_token_count", c.c_size_t), ("ignore_end", c.c_bool),
                ("tenant", c.c_char_p), ("tenant_weight", c.c_float), ("priority", c.c_uint32),
                ("first_token_deadline", c.c_double), ("deadline", c.c_double),
                ("cache_salt", c.c_char_p), ("on_event", EVENT), ("on_event_context", c.c_void_p),
                ("grammar", Handle), ("prompt_logprobs", c.c_bool), ("no_answer", c.c_bool),
                ("pooling", c.c_int), ("open_grammar", c.c_void_p),
                ("open_grammar_context", c.c_void_p), ("speculate", c.c_char_p),
                ("draft_tokens", c.c_uint32), ("prompt_logprobs_from", c.c_size_t),
                ("tenant_kv_tokens", c.c_uint64), ("min_new_tokens", c.c_uint32),
                ("repetition", Repetition)]

    def __init__(self, **fields):  # AVO_REQUEST_INIT
        super().__init__(**{"priority": 8, **fields})


class ChatAdapter(Structure):
    _fields_ = [("name", c.c_char_p), ("adapter", Handle), ("weight", c.c_float)]


class ChatRequestOptions(Structure):
    _fields_ = [("size", c.c_size_t), ("defaults", c.POINTER(Request)),
                ("adapters", c.POINTER(ChatAdapter)), ("adapter_count", c.c_size_t),
                ("system", c.c_char_p), ("raw", c.c_bool),
                ("unnamed_sampling", c.POINTER(Sampling))]


class ChatDelta(Structure):
    _fields_ = [("size", c.c_size_t), ("content", c.c_void_p), ("content_bytes", c.c_size_t),
                ("reasoning", c.c_void_p), ("reasoning_bytes", c.c_size_t),
                ("calls", c.c_size_t)]


class ToolCall(Structure):
    _fields_ = [("size", c.c_size_t), ("name", c.c_void_p), ("name_bytes", c.c_size_t),
                ("arguments", c.c_void_p), ("arguments_bytes", c.c_size_t),
                ("complete", c.c_bool)]


class SchedulerInfo(Structure):
    _fields_ = [("size", c.c_size_t), ("waiting", c.c_uint32), ("running", c.c_uint32),
                ("waiting_tokens", c.c_uint64), ("submitted", c.c_uint64),
                ("finished", c.c_uint64), ("cancelled", c.c_uint64), ("expired", c.c_uint64),
                ("refused", c.c_uint64), ("failed", c.c_uint64), ("preemptions", c.c_uint64),
                ("prompt_tokens", c.c_uint64), ("reused_tokens", c.c_uint64),
                ("new_tokens", c.c_uint64), ("recomputed_tokens", c.c_uint64),
                ("steps", c.c_uint64), ("step_seconds", c.c_double), ("busy_seconds", c.c_double),
                ("tokenizer_seconds", c.c_double), ("delivery_seconds", c.c_double),
                ("pages_free", c.c_uint32), ("pages_cached", c.c_uint32),
                ("pages_used", c.c_uint32), ("prefix_queried_tokens", c.c_uint64),
                ("prefix_hit_tokens", c.c_uint64), ("prefill_steps", c.c_uint64),
                ("prefill_seconds", c.c_double), ("prefill_threads", c.c_uint32),
                ("resumed_tokens", c.c_uint64), ("drafted_tokens", c.c_uint64),
                ("accepted_tokens", c.c_uint64), ("device_failures", c.c_uint64)]


class TrainEvent(Structure):
    _fields_ = [("size", c.c_size_t), ("step", c.c_uint64), ("steps", c.c_uint64),
                ("loss", c.c_double), ("reward", c.c_double), ("learning_rate", c.c_double),
                ("tokens_per_second", c.c_double), ("seconds_left", c.c_double),
                ("metrics", c.c_char_p), ("evaluation", c.c_bool)]


TRAIN_ADAPTER = c.CFUNCTYPE(None, c.c_void_p, c.c_uint64)
TRAIN_STEP = c.CFUNCTYPE(c.c_bool, c.c_void_p, c.POINTER(TrainEvent))


class TrainCompletion(Structure):
    _fields_ = [("prompt", c.c_char_p), ("completion", c.c_char_p), ("fields", c.c_char_p)]


TRAIN_SCORE = c.CFUNCTYPE(c.c_bool, c.c_void_p, c.POINTER(TrainCompletion), c.c_size_t,
                          c.POINTER(c.c_double))


class TrainReward(Structure):
    _fields_ = [("name", c.c_char_p), ("weight", c.c_double), ("score", TRAIN_SCORE),
                ("context", c.c_void_p)]


class TrainServer(Structure):
    _fields_ = [("size", c.c_size_t), ("address", c.c_char_p), ("command", c.c_char_p),
                ("config", c.c_char_p), ("every", c.c_uint32)]


class TrainOptions(Structure):
    _fields_ = [("size", c.c_size_t), ("task", c.c_char_p), ("output", c.c_char_p),
                ("settings", c.c_char_p), ("resume", c.c_bool),
                ("rewards", c.POINTER(TrainReward)), ("reward_count", c.c_size_t),
                ("on_step", TRAIN_STEP), ("on_step_context", c.c_void_p),
                ("progress", PROGRESS), ("progress_context", c.c_void_p), ("log", LOG),
                ("log_context", c.c_void_p), ("engine", c.POINTER(EngineOptions)),
                ("allocator", c.c_void_p), ("on_adapter", TRAIN_ADAPTER),
                ("on_adapter_context", c.c_void_p), ("adapter_every", c.c_uint32),
                ("server", c.POINTER(TrainServer))]


class TrainResult(Structure):
    _fields_ = [("size", c.c_size_t), ("first_step", c.c_uint64), ("step", c.c_uint64),
                ("steps", c.c_uint64), ("tokens", c.c_uint64), ("loss", c.c_double),
                ("best_loss", c.c_double), ("best_step", c.c_uint64), ("seconds", c.c_double)]


# The C name of every structure, for those who compare.
STRUCTURES = {
    "avo_error": Error, "avo_model_options": ModelOptions, "avo_model_info": ModelInfo,
    "avo_message": Message, "avo_chat_options": ChatOptions, "avo_engine_options": EngineOptions,
    "avo_plan": Plan, "avo_adapter_use": AdapterUse, "avo_session_options": SessionOptions,
    "avo_kv_info": KvInfo, "avo_adapter_options": AdapterOptions, "avo_adapter_info": AdapterInfo,
    "avo_adapter_module": AdapterModule, "avo_registry_options": RegistryOptions,
    "avo_registry_entry": RegistryEntry, "avo_logit_bias": LogitBias, "avo_sampling": Sampling,
    "avo_logprob": Logprob, "avo_token_event": TokenEvent,
    "avo_scheduler_options": SchedulerOptions, "avo_result": Result,
    "avo_event": Event, "avo_named_adapter": NamedAdapter, "avo_repetition": Repetition,
    "avo_request": Request,
    "avo_scheduler_info": SchedulerInfo, "avo_telemetry_options": TelemetryOptions,
    "avo_answer_times": AnswerTimes, "avo_trace_reader": TraceReader,
    "avo_grammar_options": GrammarOptions, "avo_grammar_info": GrammarInfo,
    "avo_chat_adapter": ChatAdapter, "avo_chat_request_options": ChatRequestOptions,
    "avo_chat_delta": ChatDelta, "avo_tool_call": ToolCall,
    "avo_train_event": TrainEvent, "avo_train_completion": TrainCompletion,
    "avo_train_reward": TrainReward, "avo_train_options": TrainOptions,
    "avo_train_server": TrainServer,
    "avo_train_result": TrainResult,
}

_ERROR = c.POINTER(Error)
_OUT = c.POINTER(Handle)
_COUNT = c.POINTER(c.c_size_t)
STATUS = c.c_int

# name: (result, arguments)
FUNCTIONS = {
    "avo_status_text": (c.c_char_p, [c.c_int]),
    "avo_version": (c.c_char_p, []),
    "avo_model_open": (STATUS, [c.c_char_p, c.POINTER(ModelOptions), _OUT, _ERROR]),
    "avo_model_close": (None, [Handle]),
    "avo_model_describe": (None, [Handle, c.POINTER(ModelInfo)]),
    "avo_model_token_ends": (c.c_bool, [Handle, c.c_int32]),
    "avo_heads_open": (STATUS, [Handle, c.c_char_p, _OUT, _ERROR]),
    "avo_heads_close": (None, [Handle]),
    "avo_model_sampling": (None, [Handle, c.POINTER(Sampling)]),
    "avo_model_recommends": (c.c_bool, [Handle]),
    "avo_tokenize": (STATUS, [Handle, c.c_char_p, c.c_size_t, c.c_uint32, IDS, c.c_size_t, _COUNT,
                              _ERROR]),
    "avo_detokenize": (STATUS, [Handle, IDS, c.c_size_t, c.c_uint32, c.c_char_p, c.c_size_t,
                                _COUNT, _ERROR]),
    "avo_chat_tokenize": (STATUS, [Handle, c.POINTER(Message), c.c_size_t,
                                   c.POINTER(ChatOptions), IDS, c.c_size_t, _COUNT, _ERROR]),
    "avo_chat_check": (STATUS, [Handle, _ERROR]),
    "avo_value_open": (STATUS, [c.c_char_p, c.c_size_t, c.c_void_p, _OUT, _ERROR]),
    "avo_value_share": (Handle, [Handle]),
    "avo_value_close": (None, [Handle]),
    "avo_engine_open": (STATUS, [Handle, c.POINTER(EngineOptions), _OUT, _ERROR]),
    "avo_engine_close": (None, [Handle]),
    "avo_engine_device": (c.c_char_p, [Handle]),
    "avo_engine_plan": (STATUS, [Handle, c.POINTER(EngineOptions), c.POINTER(Plan), _ERROR]),
    "avo_engine_kv": (None, [Handle, c.POINTER(KvInfo)]),
    "avo_session_open": (STATUS, [Handle, c.POINTER(SessionOptions), _OUT, _ERROR]),
    "avo_session_close": (None, [Handle]),
    "avo_session_length": (c.c_uint32, [Handle]),
    "avo_session_tokens": (IDS, [Handle]),
    "avo_session_truncate": (STATUS, [Handle, c.c_uint32, _ERROR]),
    "avo_session_fork": (STATUS, [Handle, _OUT, _ERROR]),
    "avo_session_reuse": (STATUS, [Handle, IDS, c.c_size_t, _COUNT, _ERROR]),
    "avo_session_save": (STATUS, [Handle, c.c_char_p, _ERROR]),
    "avo_session_restore": (STATUS, [Handle, c.c_char_p, _ERROR]),
    "avo_batch_open": (STATUS, [Handle, _OUT, _ERROR]),
    "avo_batch_close": (None, [Handle]),
    "avo_batch_clear": (None, [Handle]),
    "avo_batch_add_scored": (STATUS, [Handle, Handle, IDS, c.c_size_t, c.c_size_t]),
    "avo_batch_error": (_ERROR, [Handle]),
    "avo_batch_logits": (FLOATS, [Handle, Handle, c.c_size_t]),
    "avo_batch_score": (STATUS, [Handle, Handle, c.c_size_t, c.c_size_t, IDS, c.c_uint32, FLOATS,
                                 c.POINTER(Logprob)]),
    "avo_batch_hidden": (FLOATS, [Handle, Handle, c.c_size_t, c.c_size_t]),
    "avo_batch_tap": (FLOATS, [Handle, Handle, c.c_uint32, c.c_size_t, c.c_size_t]),
    "avo_step": (STATUS, [Handle, Handle]),
    "avo_grammar_open": (STATUS, [Handle, c.c_int, c.c_char_p, c.POINTER(GrammarOptions), _OUT,
                                  _ERROR]),
    "avo_grammar_close": (None, [Handle]),
    "avo_grammar_describe": (None, [Handle, c.POINTER(GrammarInfo)]),
    "avo_adapter_open": (STATUS, [Handle, c.c_char_p, c.POINTER(AdapterOptions), _OUT, _ERROR]),
    "avo_adapter_close": (None, [Handle]),
    "avo_adapter_describe": (None, [Handle, c.POINTER(AdapterInfo)]),
    "avo_adapter_module_at": (c.c_bool, [Handle, c.c_size_t, c.POINTER(AdapterModule)]),
    "avo_adapter_pack": (STATUS, [Handle, c.c_char_p, _ERROR]),
    "avo_registry_open": (STATUS, [Handle, c.POINTER(RegistryOptions), _OUT, _ERROR]),
    "avo_registry_close": (None, [Handle]),
    "avo_registry_load": (STATUS, [Handle, c.c_char_p, c.c_char_p, c.c_uint32, _ERROR]),
    "avo_registry_unload": (STATUS, [Handle, c.c_char_p, _ERROR]),
    "avo_registry_take": (STATUS, [Handle, c.c_char_p, _OUT, _ERROR]),
    "avo_registry_list": (None, [Handle, REGISTRY_SEE, c.c_void_p]),
    "avo_train_run": (STATUS, [Handle, c.POINTER(TrainOptions), c.POINTER(TrainResult), _ERROR]),
    "avo_generate": (STATUS, [Handle, Handle, c.POINTER(Request), c.POINTER(Result), _ERROR]),
    "avo_chat_open": (STATUS, [Handle, _OUT, _ERROR]),
    "avo_chat_close": (None, [Handle]),
    "avo_chat_request_open": (STATUS, [Handle, c.c_char_p, c.c_size_t,
                                       c.POINTER(ChatRequestOptions), _OUT, _ERROR]),
    "avo_chat_request_close": (None, [Handle]),
    "avo_chat_request_get": (c.POINTER(Request), [Handle]),
    "avo_chat_parser_open": (STATUS, [Handle, c.c_uint32, _OUT, _ERROR]),
    "avo_chat_parser_close": (None, [Handle]),
    "avo_chat_parser_push": (STATUS, [Handle, c.POINTER(TokenEvent), c.POINTER(ChatDelta),
                                      _ERROR]),
    "avo_chat_parser_call": (c.c_bool, [Handle, c.c_size_t, c.POINTER(ToolCall)]),
    "avo_scheduler_open": (STATUS, [Handle, c.POINTER(SchedulerOptions), _OUT, _ERROR]),
    "avo_scheduler_close": (None, [Handle]),
    "avo_scheduler_drain": (c.c_bool, [Handle, c.c_double]),
    "avo_scheduler_submit": (STATUS, [Handle, c.POINTER(Request), c.POINTER(c.c_uint64),
                                      c.POINTER(c.c_double), _ERROR]),
    "avo_scheduler_cancel": (c.c_bool, [Handle, c.c_uint64]),
    "avo_scheduler_save_corpus": (STATUS, [Handle, c.c_char_p, _ERROR]),
    "avo_scheduler_describe": (None, [Handle, c.POINTER(SchedulerInfo)]),
    "avo_engine_measure": (STATUS, [Handle, c.POINTER(c.c_double), _ERROR]),
    "avo_telemetry_open": (STATUS, [c.POINTER(TelemetryOptions), c.c_void_p, _OUT, _ERROR]),
    "avo_telemetry_close": (None, [Handle]),
    "avo_telemetry_trace_record": (STATUS, [Handle, c.c_double, c.c_uint64,
                                            c.POINTER(TraceReader), _ERROR]),
    "avo_telemetry_history": (STATUS, [Handle, c.c_char_p, c.c_uint64, _ERROR]),
    "avo_telemetry_append": (STATUS, [c.c_char_p, c.POINTER(AnswerTimes), _ERROR]),
    "avo_telemetry_row": (STATUS, [c.POINTER(AnswerTimes), WRITE, c.c_void_p, _ERROR]),
    "avo_telemetry_export": (STATUS, [Handle, c.c_int, WRITE, c.c_void_p, _ERROR]),
    "avo_telemetry_trace_begin": (None, [Handle]),
    "avo_telemetry_trace_end": (None, [Handle]),
    "avo_telemetry_trace_write": (STATUS, [Handle, c.c_double, WRITE, c.c_void_p, _ERROR]),
}
