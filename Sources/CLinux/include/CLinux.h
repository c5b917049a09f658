#pragma once
// Calls of Linux that Swift's Glibc module does not offer.
#include <sys/fsuid.h>
