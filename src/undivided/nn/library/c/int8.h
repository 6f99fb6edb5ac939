/* What the products and the layers of 8 bits share. */

#include "vectors.h"

/* Weights of a product `depth → outputs`, packed by int8_pack; `bias` may be NULL. */
typedef struct {
    int8_t *packed;
    float *scales;
    int32_t *offsets;
    float *bias;
    int64_t outputs, depth;
} int8_product;

enum { INT8_QUAD = 4 };

static inline int64_t padded_depth(int64_t depth) { return round_up(depth, INT8_QUAD); }

/* Room for the rows of a product: their bytes, and their scales. */
typedef struct {
    uint8_t *bytes;
    float *scales;
} int8_rows;

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
#define INT8_WORKS
__attribute__((visibility("hidden"))) void int8_multiply(const float *x, int64_t rows, const int8_product *weights, int relu,
                                                           int8_rows room, float *out);
#endif
