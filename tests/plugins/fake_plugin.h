/* A complete plugin in C that does nothing, for plugins with one thing wrong. Each of them is one file that includes
 * this one, starts from fake_fill and changes what its name says. */
#ifndef BACKPLANE_TESTS_FAKE_PLUGIN_H_
#define BACKPLANE_TESTS_FAKE_PLUGIN_H_

#include <string.h>

#include "backplane_plugin.h"

static const bp_host* fake_host;
static int fake_object; /* every handle points here */

static bp_status fake_count(bp_context context, uint32_t* devices) {
  (void)context;
  *devices = 1;
  return BP_OK;
}

static bp_status fake_open(bp_context context, uint32_t index, const bp_open_params* params, bp_device* device) {
  (void)context, (void)index, (void)params;
  *device = (bp_device)&fake_object;
  return BP_OK;
}

static void fake_close(bp_device device) { (void)device; }

static bp_status fake_caps(bp_device device, bp_context context, bp_caps* caps) {
  (void)device, (void)context, (void)caps;
  return BP_OK;
}

static bp_status fake_supports(bp_device device, bp_context context, const bp_op_query* query, bp_support* support) {
  (void)device, (void)query, (void)support;
  return fake_host->fail(context, BP_UNSUPPORTED, "a fake computes nothing");
}

static bp_status fake_run(bp_device device, bp_stream stream, bp_context context, const bp_op* op) {
  (void)device, (void)stream, (void)op;
  return fake_host->fail(context, BP_UNSUPPORTED, "a fake computes nothing");
}

static bp_status fake_alloc(bp_device device, bp_context context, uint64_t bytes, bp_memory kind, bp_buffer* buffer) {
  (void)device, (void)context, (void)bytes, (void)kind;
  *buffer = (bp_buffer)&fake_object;
  return BP_OK;
}

static void fake_free(bp_device device, bp_buffer buffer) { (void)device, (void)buffer; }

static bp_status fake_upload(bp_device device, bp_stream stream, bp_context context, bp_buffer buffer, uint64_t offset,
                             const void* data, uint64_t bytes) {
  (void)device, (void)stream, (void)context, (void)buffer, (void)offset, (void)data, (void)bytes;
  return BP_OK;
}

static bp_status fake_download(bp_device device, bp_stream stream, bp_context context, bp_buffer buffer,
                               uint64_t offset, void* data, uint64_t bytes) {
  (void)device, (void)stream, (void)context, (void)buffer, (void)offset, (void)data, (void)bytes;
  return BP_OK;
}

/* The eleven required functions, the entry point being one of them. */
static void fake_fill(const bp_host* host, bp_tables* tables, const char* name) {
  fake_host = host;
  tables->driver->name = name;
  tables->driver->version = "fake 1";
  tables->driver->count = fake_count;
  tables->driver->open = fake_open;
  tables->driver->close = fake_close;
  tables->device->caps = fake_caps;
  tables->device->supports = fake_supports;
  tables->device->run = fake_run;
  tables->buffer->alloc = fake_alloc;
  tables->buffer->free = fake_free;
  tables->buffer->upload = fake_upload;
  tables->buffer->download = fake_download;
}

#endif
