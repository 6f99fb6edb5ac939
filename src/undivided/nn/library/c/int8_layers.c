/* The Transformer in 8 bits: whole stacks of layers in one call, with nothing between the operations but the operations.
   [paper 3.1–3.3]

   Rows are tokens; sentences stand one after the other without padding. Every row's numbers depend on that row's sentence alone. */

#include "int8.h"

typedef struct {
    float *gain, *shift;
} int8_norm;

/* An encoder layer has no `query`, `key_value`, `across` and `across_norm`, a recurrent decoder layer no `output`. */
typedef struct {
    int8_product qkv, output, query, key_value, across, inner, outer;
    int8_norm attention_norm, across_norm, feed_forward_norm;
} int8_layer;

/* `pre`: norms stand before the sub-layers and after the last one. Heads are `width / heads` wide, a multiple of 16.
   `activation`: 0 is max(0, x), 1 is x · sigmoid(x). */
typedef struct {
    int64_t layers, width, heads, inner_width, pre, activation;
    float epsilon;
    int8_layer *layer;
    int8_norm last_norm;
} int8_stack;

/* What the past of every row is: for each position a block `layers × rows × 2 · width` of keys and values, and how many rows it has;
   `places`, rows × positions, tell which row of a block is whose. `at` is the position of each row's token: there it writes, and up to
   there it reads. So several rows may be tokens of one sentence, one behind the other. */
typedef struct {
    int64_t positions;
    float **blocks;
    int64_t *counts;
    int64_t *places;
    int64_t *at;
} int8_past;

/* What hypotheses read of the encoder's output: `layers × tokens × 2 · width`; the sentence of a row begins at token `starts`. */
typedef struct {
    int64_t tokens;
    float *keys_values;
    int64_t *starts, *lengths;
} int8_memory;

#ifdef INT8_WORKS
#include <immintrin.h>

/* Room for a call, freed at its end. */
typedef struct {
    int8_rows rows;
    float *normed, *wide, *narrow, *scores;
    const float **seen;
} workspace;

static void free_workspace(workspace *room) {
    free(room->rows.bytes), free(room->rows.scales), free(room->normed), free(room->wide), free(room->narrow), free(room->scores);
    free(room->seen);
}

/* Room for `rows` rows, of which each attends to at most `reach` others. */
static int make_workspace(workspace *room, const int8_stack *stack, int64_t rows, int64_t reach) {
    int64_t width = stack->width, widest = stack->inner_width > 3 * width ? stack->inner_width : 3 * width;
    room->rows.bytes = malloc((size_t)(rows * padded_depth(widest)));
    room->rows.scales = allocate_zeros(rows);
    room->normed = allocate_zeros(rows * width);
    room->wide = allocate_zeros(rows * widest);
    room->narrow = allocate_zeros(rows * width);
    room->scores = allocate_zeros(round_up(reach, WIDE));
    room->seen = malloc((size_t)(reach > 0 ? reach : 1) * sizeof *room->seen);
    if (room->rows.bytes && room->rows.scales && room->normed && room->wide && room->narrow && room->scores && room->seen) return OK;
    free_workspace(room);
    return NO_MEMORY;
}

/* LayerNorm(x + y), or of x alone where y is NULL. */
static void norm_rows(const float *x, const float *y, int64_t rows, int64_t width, int8_norm norm, float epsilon, float *out) {
    for (int64_t r = 0; r < rows; r++, x += width, out += width) {
        float total = 0, squares = 0;
        for (int64_t i = 0; i < width; i++) {
            out[i] = y ? x[i] + y[r * width + i] : x[i];
            total += out[i];
        }
        float mean = total / (float)width;
        for (int64_t i = 0; i < width; i++) squares += (out[i] - mean) * (out[i] - mean);
        float inverse_deviation = 1.0f / __builtin_sqrtf(squares / (float)width + epsilon);
        for (int64_t i = 0; i < width; i++) out[i] = (out[i] - mean) * inverse_deviation * norm.gain[i] + norm.shift[i];
    }
}

/* What a sub-layer reads: x, or its norm. */
static const float *before(const int8_stack *stack, const float *x, int64_t rows, int8_norm norm, workspace *room) {
    if (!stack->pre) return x;
    norm_rows(x, NULL, rows, stack->width, norm, stack->epsilon, room->normed);
    return room->normed;
}

/* x becomes x + y, or its norm. */
static void after(const int8_stack *stack, float *x, const float *y, int64_t rows, int8_norm norm) {
    if (!stack->pre) {
        norm_rows(x, y, rows, stack->width, norm, stack->epsilon, x);
        return;
    }
    for (int64_t i = 0; i < rows * stack->width; i++) x[i] += y[i];
}

static inline wide sigmoid_lanes(wide x) {
    wide small = exp_lanes((wide)_mm512_or_ps((__m512)x, _mm512_set1_ps(-0.0f))); /* e^-|x| */
    return select_lanes(x < 0.0f, small, broadcast(1.0f)) / (small + 1.0f);
}

static void feed_forward(const int8_stack *stack, const int8_layer *layer, float *x, int64_t rows, workspace *room) {
    const float *from = before(stack, x, rows, layer->feed_forward_norm, room);
    int64_t count = rows * stack->inner_width;
    int8_multiply(from, rows, &layer->inner, stack->activation == 0, room->rows, room->wide);
    if (stack->activation == 1) {
        int64_t i = 0;
        for (; i + WIDE <= count; i += WIDE) store(room->wide + i, load(room->wide + i) * sigmoid_lanes(load(room->wide + i)));
        for (; i < count; i++) room->wide[i] *= sigmoid_lanes(broadcast(room->wide[i]))[0];
    }
    int8_multiply(room->wide, rows, &layer->outer, 0, room->rows, room->narrow);
    after(stack, x, room->narrow, rows, layer->feed_forward_norm);
}

/* Eq. 1 of one head for one query; seen[t] + first is where the key of position t begins, and `apart` further its value. `scores`
   has room for whole vectors. */
static void attend_one(const float *query, const float *const *seen, int64_t first, int64_t apart, int64_t length,
                       int64_t head_width, float *scores, float *out) {
    int64_t even = round_up(length, WIDE);
    float scale = 1.0f / __builtin_sqrtf((float)head_width);
    for (int64_t t = 0; t < length; t++) {
        const float *key = seen[t] + first;
        wide sum = load(query) * load(key);
        for (int64_t i = WIDE; i < head_width; i += WIDE) sum += load(query + i) * load(key + i);
        scores[t] = _mm512_reduce_add_ps((__m512)sum) * scale;
    }
    for (int64_t t = length; t < even; t++) scores[t] = -__builtin_inff();
    wide most = load(scores), sum = {0};
    for (int64_t t = WIDE; t < even; t += WIDE) most = (wide)_mm512_max_ps((__m512)load(scores + t), (__m512)most);
    wide highest = broadcast(_mm512_reduce_max_ps((__m512)most)); /* NaN among the scores stays NaN in the powers */
    for (int64_t t = 0; t < even; t += WIDE) {
        wide power = exp_lanes(load(scores + t) - highest);
        store(scores + t, power);
        sum += power;
    }
    wide inverse = broadcast(1.0f / _mm512_reduce_add_ps((__m512)sum));
    int64_t i = 0;
    for (; i + 4 * WIDE <= head_width; i += 4 * WIDE) {
        wide mix[4] = {{0}};
        for (int64_t t = 0; t < length; t++) {
            const float *value = seen[t] + first + apart + i;
            for (int v = 0; v < 4; v++) mix[v] += scores[t] * load(value + v * WIDE);
        }
        for (int v = 0; v < 4; v++) store(out + i + v * WIDE, mix[v] * inverse);
    }
    for (; i < head_width; i += WIDE) {
        wide mix = {0};
        for (int64_t t = 0; t < length; t++) mix += scores[t] * load(seen[t] + first + apart + i);
        store(out + i, mix * inverse);
    }
}

static void attend_within(const int8_stack *stack, const int8_layer *layer, float *x, const int64_t *lengths, int64_t sentences,
                          int64_t rows, workspace *room) {
    int64_t width = stack->width;
    int8_multiply(before(stack, x, rows, layer->attention_norm, room), rows, &layer->qkv, 0, room->rows, room->wide);
    int64_t start = 0;
    for (int64_t s = 0; s < sentences; start += lengths[s++]) {
        for (int64_t t = 0; t < lengths[s]; t++) room->seen[t] = room->wide + (start + t) * 3 * width + width;
        for (int64_t first = 0; first < width; first += width / stack->heads)
            for (int64_t t = 0; t < lengths[s]; t++)
                attend_one(room->wide + (start + t) * 3 * width + first, room->seen, first, width, lengths[s], width / stack->heads,
                           room->scores, room->normed + (start + t) * width + first);
    }
    int8_multiply(room->normed, rows, &layer->output, 0, room->rows, room->narrow);
    after(stack, x, room->narrow, rows, layer->attention_norm);
}

/* Where the keys and values of a row's past at position t are, in one layer. */
static inline float *past_of(const int8_past *past, int64_t number, int64_t r, int64_t t, int64_t width) {
    return past->blocks[t] + (number * past->counts[t] + past->places[r * past->positions + t]) * 2 * width;
}

/* A simpler simple recurrent unit, where a layer has no product `output`: `qkv` gives gates and candidates side by side, and of its
   past a row reads the one cell that it left at the position before (nn/ssru.py). */
static void recur(const int8_stack *stack, int64_t number, float *x, int64_t rows, const int8_past *past, workspace *room) {
    const int8_layer *layer = stack->layer + number;
    int64_t width = stack->width;
    int8_multiply(before(stack, x, rows, layer->attention_norm, room), rows, &layer->qkv, 0, room->rows, room->wide);
    for (int64_t r = 0; r < rows; r++) {
        const float *gates = room->wide + r * 2 * width, *candidates = gates + width;
        const float *earlier = past->at[r] ? past_of(past, number, r, past->at[r] - 1, width) : NULL;
        float *cell = past_of(past, number, r, past->at[r], width), *out = room->narrow + r * width;
        for (int64_t i = 0; i < width; i += WIDE) {
            wide gate = sigmoid_lanes(load(gates + i)), candidate = load(candidates + i);
            wide kept = candidate - gate * candidate;
            if (earlier) kept += gate * load(earlier + i);
            store(cell + i, kept);
            store(out + i, lane_max(kept, (wide){0}));
        }
    }
    after(stack, x, room->narrow, rows, layer->attention_norm);
}

/* Rows read their past, their own position included; all keys and values of this step are written first. */
static void attend_past(const int8_stack *stack, int64_t number, float *x, int64_t rows, const int8_past *past, workspace *room) {
    const int8_layer *layer = stack->layer + number;
    int64_t width = stack->width;
    int8_multiply(before(stack, x, rows, layer->attention_norm, room), rows, &layer->qkv, 0, room->rows, room->wide);
    for (int64_t r = 0; r < rows; r++)
        memcpy(past_of(past, number, r, past->at[r], width), room->wide + r * 3 * width + width, (size_t)(2 * width) * sizeof(float));
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t t = 0; t <= past->at[r]; t++) room->seen[t] = past_of(past, number, r, t, width);
        for (int64_t first = 0; first < width; first += width / stack->heads)
            attend_one(room->wide + r * 3 * width + first, room->seen, first, width, past->at[r] + 1, width / stack->heads,
                       room->scores, room->normed + r * width + first);
    }
    int8_multiply(room->normed, rows, &layer->output, 0, room->rows, room->narrow);
    after(stack, x, room->narrow, rows, layer->attention_norm);
}

static void attend_memory(const int8_stack *stack, int64_t number, float *x, int64_t rows, const int8_memory *memory,
                          workspace *room) {
    const int8_layer *layer = stack->layer + number;
    int64_t width = stack->width;
    int8_multiply(before(stack, x, rows, layer->across_norm, room), rows, &layer->query, 0, room->rows, room->wide);
    for (int64_t start = 0, end; start < rows; start = end) {
        /* Hypotheses of one sentence read the same: head by head, it stays near. */
        const float *from = memory->keys_values + (number * memory->tokens + memory->starts[start]) * 2 * width;
        int64_t length = memory->lengths[start];
        for (end = start + 1; end < rows && memory->starts[end] == memory->starts[start]; end++) continue;
        for (int64_t t = 0; t < length; t++) room->seen[t] = from + t * 2 * width;
        for (int64_t first = 0; first < width; first += width / stack->heads)
            for (int64_t r = start; r < end; r++)
                attend_one(room->wide + r * width + first, room->seen, first, width, length, width / stack->heads, room->scores,
                           room->normed + r * width + first);
    }
    int8_multiply(room->normed, rows, &layer->across, 0, room->rows, room->narrow);
    after(stack, x, room->narrow, rows, layer->across_norm);
}

#endif

/* The encoder: embedded tokens `rows × width` of sentences of these lengths become its output. */
int int8_encode(const int8_stack *stack, float *x, const int64_t *lengths, int64_t sentences) {
#ifdef INT8_WORKS
    workspace room;
    int64_t rows = 0, longest = 0;
    for (int64_t s = 0; s < sentences; s++) {
        rows += lengths[s];
        longest = lengths[s] > longest ? lengths[s] : longest;
    }
    if (make_workspace(&room, stack, rows, longest)) return NO_MEMORY;
    for (int64_t number = 0; number < stack->layers; number++) {
        attend_within(stack, stack->layer + number, x, lengths, sentences, rows, &room);
        feed_forward(stack, stack->layer + number, x, rows, &room);
    }
    if (stack->pre) norm_rows(x, NULL, rows, stack->width, stack->last_norm, stack->epsilon, x);
    free_workspace(&room);
    return OK;
#else
    (void)stack, (void)x, (void)lengths, (void)sentences;
    return UNSUPPORTED;
#endif
}

/* Keys and values of the encoder's output `tokens × width` for every layer of the decoder: `layers × tokens × 2 · width`. */
int int8_read(const int8_stack *stack, const float *states, int64_t tokens, float *keys_values) {
#ifdef INT8_WORKS
    workspace room;
    if (make_workspace(&room, stack, tokens, 0)) return NO_MEMORY;
    for (int64_t number = 0; number < stack->layers; number++)
        int8_multiply(states, tokens, &stack->layer[number].key_value, 0, room.rows, keys_values + number * tokens * 2 * stack->width);
    free_workspace(&room);
    return OK;
#else
    (void)stack, (void)states, (void)tokens, (void)keys_values;
    return UNSUPPORTED;
#endif
}

/* More tokens, each behind its past: embedded tokens `rows × width` become the decoder's output. */
int int8_step(const int8_stack *stack, float *x, int64_t rows, const int8_past *past, const int8_memory *memory) {
    int64_t reach = past->positions;
    for (int64_t r = 0; r < rows; r++) {
        if ((uint64_t)past->at[r] >= (uint64_t)past->positions) return BAD_INDEX;
        reach = memory->lengths[r] > reach ? memory->lengths[r] : reach;
        if (memory->starts[r] < 0 || memory->lengths[r] < 1 || memory->starts[r] > memory->tokens - memory->lengths[r])
            return BAD_INDEX;
        for (int64_t t = 0; t <= past->at[r]; t++)
            if ((uint64_t)past->places[r * past->positions + t] >= (uint64_t)past->counts[t]) return BAD_INDEX;
    }
#ifdef INT8_WORKS
    workspace room;
    if (make_workspace(&room, stack, rows, reach)) return NO_MEMORY;
    for (int64_t number = 0; number < stack->layers; number++) {
        if (stack->layer[number].output.packed)
            attend_past(stack, number, x, rows, past, &room);
        else
            recur(stack, number, x, rows, past, &room);
        attend_memory(stack, number, x, rows, memory, &room);
        feed_forward(stack, stack->layer + number, x, rows, &room);
    }
    if (stack->pre) norm_rows(x, NULL, rows, stack->width, stack->last_norm, stack->epsilon, x);
    free_workspace(&room);
    return OK;
#else
    (void)stack, (void)x;
    return UNSUPPORTED;
#endif
}
