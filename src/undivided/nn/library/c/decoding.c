/* One step of decoding: attention to cached keys and values, and the most probable next tokens. */

#include "vectors.h"

/* Attention of one position of every beam to what it reads: its past, or the memory of its sentence. `places` tells for each
   beam (stride `beam_step`) and position (stride `step`) the row of keys and values, one of `rows`, in which it lies, `mask`
   whether it may be read (NULL: all may). Widths are multiples of 16. */
int attend_cached(const float *query, int64_t query_row, const head_view *key, const head_view *value, const int64_t *places,
                  int64_t beam_step, int64_t step, const uint8_t *mask, int64_t rows, int64_t beams, int64_t first, int64_t length,
                  int64_t heads, int64_t width, int64_t value_width, float scale, float *out) {
    for (int64_t beam = 0; beam < beams; beam++)
        for (int64_t t = first; t < length; t++)
            if ((uint64_t)places[beam * beam_step + t * step] >= (uint64_t)rows) return BAD_INDEX;
    int64_t T = round_up(length - first, WIDE);
    float *scores = allocate_zeros(heads * T);
    if (!scores) return NO_MEMORY;
    for (int64_t i = 0; i < heads * T; i++) scores[i] = -__builtin_inff();
    for (int64_t beam = 0; beam < beams; beam++, query += query_row, places += beam_step, out += heads * value_width) {
        for (int64_t t = first; t < length; t++) {
            const float *from = key->at + places[t * step] * key->batch + t * key->row;
            int may = !mask || mask[beam * length + t];
            for (int64_t h = 0; h < heads; h++) {
                wide sum = {0};
                for (int64_t i = 0; i < width; i += WIDE) sum += load(query + h * width + i) * load(from + h * key->head + i);
                scores[h * T + t - first] = may ? horizontal_sum(sum) * scale : -__builtin_inff();
            }
        }
        for (int64_t h = 0; h < heads; h++) {
            wide most = load(scores + h * T), sum = {0};
            for (int64_t t = WIDE; t < T; t += WIDE) most = lane_max(load(scores + h * T + t), most);
            float highest = horizontal_max(most);
            for (int64_t t = 0; t < T; t += WIDE) {
                wide power = exp_lanes(load(scores + h * T + t) - highest);
                store(scores + h * T + t, power);
                sum += power;
            }
            float total = horizontal_sum(sum);
            for (int64_t i = 0; i < value_width; i += WIDE) {
                wide mix = {0};
                for (int64_t t = first; t < length; t++)
                    mix += scores[h * T + t - first] *
                           load(value->at + places[t * step] * value->batch + t * value->row + h * value->head + i);
                store(out + h * value_width + i, mix / total);
            }
            for (int64_t t = length - first; t < T; t++) scores[h * T + t] = -__builtin_inff();
        }
    }
    free(scores);
    return OK;
}

/* Of each row of logits the `count` most probable tokens, best first, and the logarithms of their probabilities; of equals the
   first. Tokens before `first_token` are never taken. Where there are too few, -inf. `block_max` has room for width / 64 + 1. */
void top_tokens(const float *logits, int64_t rows, int64_t width, int64_t first_token, int64_t count, float *block_max,
                float *scores, int64_t *tokens) {
    enum { BLOCK = 64 };
    int64_t even = width / BLOCK * BLOCK;
    for (int64_t row = 0; row < rows; row++, logits += width, scores += count, tokens += count) {
        float highest = -__builtin_inff();
        for (int64_t c = 0; c < even; c += BLOCK) {
            wide most = load(logits + c);
            for (int64_t i = WIDE; i < BLOCK; i += WIDE) most = lane_max(load(logits + c + i), most);
            block_max[c / BLOCK] = horizontal_max(most);
            highest = block_max[c / BLOCK] <= highest ? highest : block_max[c / BLOCK];
        }
        block_max[even / BLOCK] = __builtin_inff();
        for (int64_t c = even; c < width; c++) highest = logits[c] <= highest ? highest : logits[c];
        wide sum = {0};
        for (int64_t c = 0; c < even; c += WIDE) sum += exp_lanes(load(logits + c) - highest);
        double total = horizontal_sum(sum);
        for (int64_t c = even; c < width; c++) total += __builtin_exp((double)logits[c] - (double)highest);
        double below = (double)highest + __builtin_log(total);
        for (int64_t i = 0; i < count; i++) scores[i] = -__builtin_inff(), tokens[i] = 0;
        for (int64_t c = 0; c < width; c += BLOCK) {
            if (block_max[c / BLOCK] <= scores[count - 1]) continue;
            for (int64_t token = c; token < c + BLOCK && token < width; token++) {
                float each = logits[token];
                if (!(each > scores[count - 1]) || token < first_token) continue;
                int64_t place = count - 1;
                for (; place > 0 && scores[place - 1] < each; place--)
                    scores[place] = scores[place - 1], tokens[place] = tokens[place - 1];
                scores[place] = each;
                tokens[place] = token;
            }
        }
        for (int64_t i = 0; i < count; i++) scores[i] = (float)((double)scores[i] - below);
    }
}
