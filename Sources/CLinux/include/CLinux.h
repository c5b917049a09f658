#pragma once
// System calls of Linux that Swift's Glibc module does not declare.
#include <sys/fsuid.h>
