// SPDX-License-Identifier: Apache-2.0
// The slow, obvious versions of the ops in f64: the oracles of the op tests.
#pragma once

#include "reference_attention.hpp"
#include "reference_basic.hpp"
#include "reference_matmul.hpp"
