/* A heap that knows where its numbers stand: see heap.h. */
#include "sched/heap.h"

bool heap_init(heap *heap, arena *arena, uint32_t capacity, heap_order before,
               const void *context) {
    *heap = (struct heap){.capacity = capacity, .before = before, .context = context};
    heap->item = arena_take_array(arena, capacity, sizeof(uint32_t));
    heap->place = arena_take_array(arena, capacity, sizeof(uint32_t));
    if (heap->item == NULL || heap->place == NULL)
        return false;
    for (uint32_t i = 0; i < capacity; i++)
        heap->place[i] = HEAP_OUT;
    return true;
}

static void heap_set(heap *heap, uint32_t place, uint32_t number) {
    heap->item[place] = number;
    heap->place[number] = place;
}

static bool heap_rise(heap *heap, uint32_t place) {
    uint32_t number = heap->item[place];
    uint32_t start = place;
    while (place > 0) {
        uint32_t parent = (place - 1) / 2;
        if (!heap->before(heap->context, number, heap->item[parent]))
            break;
        heap_set(heap, place, heap->item[parent]);
        place = parent;
    }
    heap_set(heap, place, number);
    return place != start;
}

static void heap_sink(heap *heap, uint32_t place) {
    uint32_t number = heap->item[place];
    for (;;) {
        uint32_t child = 2 * place + 1;
        if (child >= heap->count)
            break;
        if (child + 1 < heap->count &&
            heap->before(heap->context, heap->item[child + 1], heap->item[child]))
            child++;
        if (!heap->before(heap->context, heap->item[child], number))
            break;
        heap_set(heap, place, heap->item[child]);
        place = child;
    }
    heap_set(heap, place, number);
}

void heap_put(heap *heap, uint32_t number) {
    uint32_t place = heap->place[number];
    if (place == HEAP_OUT) {
        place = heap->count++;
        heap_set(heap, place, number);
    }
    if (!heap_rise(heap, place))
        heap_sink(heap, place);
}

void heap_remove(heap *heap, uint32_t number) {
    uint32_t place = heap->place[number];
    if (place == HEAP_OUT)
        return;
    heap->place[number] = HEAP_OUT;
    uint32_t last = heap->item[--heap->count];
    if (last == number)
        return;
    heap_set(heap, place, last);
    if (!heap_rise(heap, place))
        heap_sink(heap, place);
}

const char *heap_check(const heap *heap) {
    for (uint32_t i = 0; i < heap->count; i++) {
        if (heap->place[heap->item[i]] != i)
            return "a heap has lost a place";
        if (i > 0 && heap->before(heap->context, heap->item[i], heap->item[(i - 1) / 2]))
            return "a heap is out of order";
    }
    return NULL;
}
