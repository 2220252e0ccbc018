/* An avo_request as the caller gave it: taken over, checked, its prompt encoded. avo_generate and
 * the scheduler both begin here, so that both refuse the same requests with the same texts. */
#ifndef AVO_ENGINE_REQUEST_H
#define AVO_ENGINE_REQUEST_H

#include "model/model.h"

/* ---- Limits that every interface shares ---- */
#define REQUEST_NEW_TOKENS_MAX  16777216
#define REQUEST_STOP_TOKENS_MAX 64
#define REQUEST_SECONDS_MAX     1e9 /* of a deadline */
#define REQUEST_PRIORITY_MAX    15

/* The roles of messages, for error texts. */
#define REQUEST_ROLES "system, developer, user, assistant or tool"
/* The role as templates know it ("developer" is "system"); NULL: there is no such role. Templates
 * would render a message of any role, so that a mistyped one would change the prompt unseen. */
const char *request_role_find(text_view role);

/* Copies a request and its sampling over the defaults of this version. `shared` is the sampling of
 * requests that have none (NULL: greedy). `request->sampling` and `request->chat` stay the
 * caller's: `sampling` and request_chat have what this version understands of them. */
AVO_MUST_USE avo_status request_take(const avo_request *given, const avo_sampling *shared,
                                     avo_request *request, avo_sampling *sampling,
                                     avo_error *error);
AVO_MUST_USE avo_status request_chat(const avo_request *request, avo_chat_options *chat,
                                     avo_error *error);
/* Whether its variables bring the conversation along, which then replaces the request's messages.
 */
bool request_chat_has_messages(const avo_chat_options *chat);

/* Refuses counts without an array, stop strings and messages that lack a part, unknown roles,
 * prompts of more than one kind, a grammar of another model, and limits or sampling out of range.
 * *has_prompt: there is a prompt.
 */
AVO_MUST_USE avo_status request_check(const avo_request *request, const avo_sampling *sampling,
                                      const avo_model *model, bool *has_prompt, avo_error *error);
/* Refuses what only a scheduler can do, by the name of the field. */
AVO_MUST_USE avo_status request_check_alone(const avo_request *request, avo_error *error);

/* Appends the ids of a prompt of text or messages. `encoder` may be NULL: one for this call. */
AVO_MUST_USE avo_status request_encode(const avo_request *request, const avo_chat_options *chat,
                                       const avo_model *model, encoder *encoder, id_list *ids,
                                       avo_error *error);

#endif
