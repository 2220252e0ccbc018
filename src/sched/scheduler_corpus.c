/* Earlier answers that requests draft from, across restarts: read when the scheduler opens, written
 * when somebody asks. The corpus belongs to the engine thread, so that thread copies it in memory
 * between two steps (a quarter of a MiB), and the caller writes the copy to the file. */
#include "sched/scheduler_int.h"

#include "base/file.h"
#include "formats/source.h"

/* NULL, with the reason: no request drafts from earlier answers. */
static corpus *find_corpus(const avo_scheduler *s, avo_error *error) {
    speculation *drafts = s->engine_limits.speculation;
    corpus *corpus = drafts == NULL ? NULL : speculation_corpus(drafts);
    if (corpus == NULL)
        (void)!status_fail(error, AVO_ERROR_ARGUMENT,
                           "a draft corpus needs the draft source \"corpus\", which the engine was "
                           "opened without (speculate)");
    return corpus;
}

/* Samples the weights: done only where a file asks for it. */
static uint64_t model_digest(const avo_scheduler *s) {
    return source_digest(s->engine_limits.model->source);
}

avo_status scheduler_corpus_open(avo_scheduler *s, avo_error *error) {
    const char *path = s->options.draft_corpus;
    if (path == NULL)
        return AVO_OK;
    corpus *corpus = find_corpus(s, error);
    if (corpus == NULL)
        return AVO_ERROR_ARGUMENT;
    corpus_clear(corpus); /* an earlier scheduler of the engine has left its texts */
    corpus_set_model(corpus, model_digest(s));
    return file_kind_of(path) == FILE_MISSING ? AVO_OK : corpus_load(corpus, path, error);
}

void scheduler_corpus_copy(avo_scheduler *s) {
    pthread_mutex_lock(&s->lock);
    buffer *copy = s->corpus_copy;
    uint64_t digest = s->corpus_digest;
    pthread_mutex_unlock(&s->lock);
    if (copy == NULL)
        return;
    corpus *corpus = speculation_corpus(s->engine_limits.speculation);
    corpus_set_model(corpus, digest);
    avo_status status = corpus_encode(corpus, copy);
    pthread_mutex_lock(&s->lock);
    s->corpus_copy = NULL;
    s->corpus_status = status;
    pthread_cond_broadcast(&s->corpus_cond);
    pthread_mutex_unlock(&s->lock);
}

/* Waits until the engine thread has made the copy; one caller at a time. */
static avo_status copy_corpus(avo_scheduler *s, buffer *copy) {
    uint64_t digest = model_digest(s);
    pthread_mutex_lock(&s->lock);
    while (s->corpus_copy != NULL)
        pthread_cond_wait(&s->corpus_cond, &s->lock);
    s->corpus_digest = digest;
    s->corpus_copy = copy;
    pthread_cond_signal(&s->engine_cond);
    while (s->corpus_copy == copy)
        pthread_cond_wait(&s->corpus_cond, &s->lock);
    avo_status status = s->corpus_status;
    pthread_mutex_unlock(&s->lock);
    return status;
}

static avo_status save(avo_scheduler *s, corpus *corpus, const char *path, avo_error *error) {
    size_t most = corpus_encoded_max(corpus);
    buffer copy;
    buffer_init(&copy, s->allocator, most);
    /* Reserved here, so that the engine thread allocates nothing. */
    avo_status status = buffer_reserve(&copy, most);
    AVO_THEN(status, copy_corpus(s, &copy));
    if (status != AVO_OK)
        status = status_no_memory(error, "a copy of the draft corpus", most);
    AVO_THEN(status,
             corpus_write((bytes_view){(const uint8_t *)copy.data, copy.size}, path, error));
    buffer_free(&copy);
    return status;
}

avo_status avo_scheduler_save_corpus(avo_scheduler *s, const char *path, avo_error *error) {
    corpus *corpus = find_corpus(s, error);
    if (corpus == NULL)
        return AVO_ERROR_ARGUMENT;
    scheduler_enter(s);
    avo_status status = save(s, corpus, path, error);
    scheduler_leave(s);
    return status;
}
