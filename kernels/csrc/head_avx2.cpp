// The output head by vectors, with AVX2.
#include "head_rows.h"

void head_avx2(const TsHead &head) { head_of_dtype(head); }
