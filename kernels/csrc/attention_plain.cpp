// Attention and the fused ops of a step for any CPU.
#include "attention_body.h"

extern const TsKernels ts_kernels_plain = TS_KERNELS;
