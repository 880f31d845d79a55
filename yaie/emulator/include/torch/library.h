// Replaces the header of torch.
#include "../emulator/torch.h"
