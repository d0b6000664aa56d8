// Attention and the fused ops of a step for AVX-512.
#include "attention_body.h"

extern const TsKernels ts_kernels_avx512 = TS_KERNELS;
