/* The file in which the ledger keeps usage: a header, then records that are only ever appended.
 *
 *   file    "AVOUSE01", then records
 *   record  u32 bytes of the payload · u64 XXH3 of the payload · payload
 *   payload u8 kind · u8 bytes of the name · the name ·
 *           kind 1: u32 day since 1970-01-01 (UTC) · five u64: requests, refused requests, prompt
 *                   tokens, of these cached ones, answer tokens
 *           kind 2: i64 begin of the quota's window (Unix milliseconds) · u64 tokens used in it
 *
 * Little-endian. A record holds totals, not differences: the last one of a name and day counts, so
 * that reading a record twice or missing an older one does no harm. What follows the first record
 * that is cut off or has a wrong sum was being written when the machine or process stopped; the
 * reader says how long the sound part is. Nothing here fails or allocates.
 */
#ifndef AVO_SERVER_LEDGER_FORMAT_H
#define AVO_SERVER_LEDGER_FORMAT_H

#include "base/cursor.h"

#define LEDGER_HEADER       "AVOUSE01"
#define LEDGER_HEADER_BYTES 8
#define LEDGER_NAME_MAX     64
#define LEDGER_RECORD_MAX   (4 + 8 + 2 + LEDGER_NAME_MAX + 4 + 5 * 8)

typedef struct ledger_totals {
    uint64_t requests, refused, prompt_tokens, cached_tokens, new_tokens;
} ledger_totals;

typedef enum ledger_kind { LEDGER_DAY = 1, LEDGER_WINDOW = 2 } ledger_kind;

typedef struct ledger_record {
    ledger_kind kind;
    text_view name; /* 1 to LEDGER_NAME_MAX bytes */
    uint32_t day;
    ledger_totals totals;
    int64_t window_ms;
    uint64_t window_tokens;
} ledger_record;

/* The bytes of a record; how many. */
size_t ledger_format_write(const ledger_record *record, uint8_t bytes[static LEDGER_RECORD_MAX]);

/* False ends the reading. */
typedef bool (*ledger_see)(void *context, const ledger_record *record);
/* Reads records up to the first that is not sound; the bytes up to there. 0: no header. */
size_t ledger_format_read(bytes_view file, ledger_see see, void *context);

#endif
