// The one linear call. Only for machines with tiles: the caller has asked `ts_best_isa`.
#include "linear.h"

TS_API void ts_linear(const TsLinear *linear) {
#if defined(__x86_64__)
    linear_amx(*linear);
#else
    (void)linear;
#endif
}
