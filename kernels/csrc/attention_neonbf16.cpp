// Attention and the fused ops of a step in bf16 for AArch64 with its products of bf16.
#include "attention_body.h"

extern const TsKernels ts_kernels_neonbf16 = TS_KERNELS;
