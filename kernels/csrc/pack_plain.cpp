// Packing an adapter with what every CPU of the platform has.
#include "pack_body.h"

int pack_plain(TsPack &pack) { return pack_of_dtype(pack); }
