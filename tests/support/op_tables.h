/* Every op table that this machine allows, for tests that compare them with the plain one. */
#ifndef AVO_TESTS_OP_TABLES_H
#define AVO_TESTS_OP_TABLES_H

#include "device/cpu/ops.h"

#define TEST_OP_TABLES 4

/* Fills plain first, then each instruction set on top of those before it; returns how many. */
size_t test_op_tables(op_table *tables);

#define TEST_PRODUCT_TABLES (2 * TEST_OP_TABLES)
/* The same, and behind them the tables of processors that lack what this one has within a set:
 * their products differ. */
size_t test_product_tables(op_table *tables);

#endif
