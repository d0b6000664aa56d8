// The output head by vectors, with AVX512.
#include "head_rows.h"

void head_avx512(const TsHead &head) { head_of_dtype(head); }
