#include "trace_file.hpp"
