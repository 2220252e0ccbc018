/* Every list and string of a request has a maximum. */
#ifndef AVO_SERVER_API_LIMITS_H
#define AVO_SERVER_API_LIMITS_H

#define API_TEXT_BYTES_MAX ((size_t)64 << 20) /* the body's own limit is smaller as a rule */
#define API_TOKENIZE_BYTES_MAX                                                                     \
    ((size_t)1 << 20)              /* /tokenize, counting: nothing else limits them                \
                                    */
#define API_AT_ONCE_BYTES_MAX 8192 /* bodies that the connections' own threads read */
#define API_NAME_BYTES_MAX    256
#define API_PATH_BYTES_MAX    4096
#define API_GRAMMARS_BYTES_MAX                                                                     \
    ((uint64_t)256 << 20) /* compiled ones that are kept, with their masks */
#define API_CHOICES_MAX                                                                            \
    CHAT_CHOICES_MAX /* of one prompt; server_options.choices_max may say less */
#define API_PROMPTS_MAX       2048
#define API_ANSWERS_MAX       4096 /* of all prompts together */
#define API_IN_FLIGHT_MAX     32   /* of one request at once: long lists leave room for others */
#define API_FIELDS_MAX        512  /* of the table */
#define API_TRACE_SECONDS_MAX 60.0
#define API_TRACE_SPANS_MAX   1000000u /* 40 MB, and some 150 as text */
#define API_ADAPTERS_KNOWN    16384    /* numbered for /lora-adapters */
#define API_ANSWER_BYTES_MAX  ((size_t)256 << 20)
#define API_HELPERS_MAX       4
#define API_READERS_MAX       4   /* threads for bodies over API_AT_ONCE_BYTES_MAX */
#define API_UNREAD_MAX        256 /* of which so many wait for one */
/* Texts of calls' arguments in a conversation, which are JSON within JSON: together so many bytes
 * for each token of the context. Those of more would be refused when all of them are parsed. */
#define API_ARGUMENTS_BYTES_EACH 64
#define API_ARGUMENTS_BYTES_MIN  ((size_t)256 << 10)

#endif
