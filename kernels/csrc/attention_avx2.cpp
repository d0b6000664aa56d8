// Attention and the fused ops of a step for AVX2.
#include "attention_body.h"

extern const TsKernels ts_kernels_avx2 = TS_KERNELS;
