// Packing an adapter with AVX2.
#include "pack_body.h"

int pack_avx2(TsPack &pack) { return pack_of_dtype(pack); }
