/* A plugin in plain C, built against the older header (make_header.py): NORM, LINEAR and ADD in F32, in host memory. It
 * knows nothing of what came later, and keeps to the rules of plugins/VERSIONING.md with nothing but this header. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backplane_plugin.h"

#ifndef OLD_PLUGIN_NAME
#define OLD_PLUGIN_NAME "old" /* the same plugin is built against each released header, under other names */
#endif

static const bp_host* host;

typedef struct memory {
  uint64_t bytes;
  char* data;
} memory;

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* What both sides know of a struct that the core allocated; its size stays. */
static void fill(void* core, uint64_t core_size, const void* own, uint64_t own_size) {
  const uint64_t known = smaller(core_size, own_size);
  memcpy((char*)core + 8, (const char*)own + 8, known - 8);
}

static bp_status count(bp_context context, uint32_t* devices) {
  (void)context;
  *devices = 1;
  return BP_OK;
}

static bp_status open_device(bp_context context, uint32_t index, const bp_open_params* params, bp_device* device) {
  if (index != 0) return host->fail(context, BP_INVALID, "no such device");
  if (params->flags != 0) return host->fail(context, BP_UNSUPPORTED, "flags"); /* it can't promise what they ask for */
  *device = (bp_device)malloc(1);
  return *device ? BP_OK : BP_OUT_OF_MEMORY;
}

static void close_device(bp_device device) { free(device); }

static bp_status caps(bp_device device, bp_context context, bp_caps* caps) {
  (void)device, (void)context;
  bp_caps own;
  memset(&own, 0, sizeof(own));
  strcpy(own.name, "0");
  strcpy(own.description, "Built long ago");
  own.flags = BP_CAP_DETERMINISTIC;
  own.activation_type = BP_TYPE_F32;
  own.alignment = 16;
  own.activation_types.bits[0] = own.weight_types.bits[0] = UINT64_C(1) << BP_TYPE_F32;
  fill(caps, caps->size, &own, sizeof(own));
  return BP_OK;
}

static bp_status no(bp_context context, const char* why) { return host->fail(context, BP_UNSUPPORTED, why); }

static bp_status supports(bp_device device, bp_context context, const bp_op_query* query, bp_support* support) {
  (void)device;
  bp_type type;
  bp_support own;
  memset(&own, 0, sizeof(own));
  own.features = BP_FEATURE_STRIDED;
  switch (query->code) {
    case BP_OP_NORM: {
      const bp_norm_args* args = query->largest;
      if (args->kind != BP_NORM_RMS) return no(context, "only RMS norms");
      type = args->x.type;
      break;
    }
    case BP_OP_LINEAR: {
      const bp_linear_args* args = query->largest;
      if (args->weight.tensor.type != BP_TYPE_F32) return no(context, "only F32 weights");
      own.features |= BP_FEATURE_BIAS;
      type = args->x.type;
      break;
    }
    case BP_OP_ADD:
      own.features |= BP_FEATURE_ALPHA;
      type = ((const bp_binary_args*)query->largest)->a.type;
      break;
    default:
      return no(context, "an op that came later");
  }
  if (type != BP_TYPE_F32) return no(context, "only F32 activations");
  own.flags = BP_SUPPORT_DETERMINISTIC;
  own.accumulator_type = BP_TYPE_F32;
  fill(support, support->size, &own, sizeof(own));
  return BP_OK;
}

static float* row(const bp_tensor* tensor, int64_t i) {
  return (float*)(((memory*)tensor->buffer)->data + tensor->offset + (uint64_t)(i * tensor->stride[0]));
}

static void run_norm(const bp_norm_args* args) {
  const int64_t n = args->x.shape[1];
  const float* weight = args->weight.type == BP_TYPE_NONE ? NULL : row(&args->weight, 0);
  for (int64_t t = 0; t < args->x.shape[0]; ++t) {
    const float* x = row(&args->x, t);
    float* out = row(&args->out, t);
    double squares = 0;
    for (int64_t i = 0; i < n; ++i) squares += (double)x[i] * x[i];
    const double root = sqrt(squares / (double)n + args->eps);
    for (int64_t i = 0; i < n; ++i) out[i] = (float)(x[i] / root * (weight ? weight[i] : 1.0F));
  }
}

static void run_linear(const bp_linear_args* args) {
  const float* bias = args->bias.type == BP_TYPE_NONE ? NULL : row(&args->bias, 0);
  for (int64_t t = 0; t < args->x.shape[0]; ++t) {
    for (int64_t n = 0; n < args->weight.tensor.shape[0]; ++n) {
      float sum = bias ? bias[n] : 0;
      for (int64_t c = 0; c < args->x.shape[1]; ++c) sum += row(&args->x, t)[c] * row(&args->weight.tensor, n)[c];
      row(&args->out, t)[n] = sum;
    }
  }
}

static void run_add(const bp_binary_args* args) {
  for (int64_t t = 0; t < args->a.shape[0]; ++t) {
    for (int64_t i = 0; i < args->a.shape[1]; ++i) {
      row(&args->out, t)[i] = row(&args->a, t)[i] + (float)args->alpha * row(&args->b, t)[i];
    }
  }
}

static bp_status run(bp_device device, bp_stream stream, bp_context context, const bp_op* op) {
  (void)device, (void)stream;
  if (op->code == BP_OP_NORM) {
    run_norm(op->args);
  } else if (op->code == BP_OP_LINEAR) {
    run_linear(op->args);
  } else if (op->code == BP_OP_ADD) {
    run_add(op->args);
  } else {
    return no(context, "an op that came later");
  }
  return BP_OK;
}

static bp_status alloc(bp_device device, bp_context context, uint64_t bytes, bp_memory kind, bp_buffer* buffer) {
  (void)device;
  if (kind > BP_MEMORY_UNIFIED) return no(context, "an unknown kind of memory");
  memory* made = malloc(sizeof(memory));
  if (made) made->data = malloc(bytes);
  if (!made || !made->data) {
    free(made);
    return BP_OUT_OF_MEMORY;
  }
  made->bytes = bytes;
  *buffer = (bp_buffer)made;
  return BP_OK;
}

static void free_buffer(bp_device device, bp_buffer buffer) {
  (void)device;
  free(((memory*)buffer)->data);
  free(buffer);
}

static bp_status upload(bp_device device, bp_stream stream, bp_context context, bp_buffer buffer, uint64_t offset,
                        const void* data, uint64_t bytes) {
  (void)device, (void)stream;
  memory* to = (memory*)buffer;
  if (offset > to->bytes || bytes > to->bytes - offset) return host->fail(context, BP_INVALID, "beyond the buffer");
  memcpy(to->data + offset, data, bytes);
  return BP_OK;
}

static bp_status download(bp_device device, bp_stream stream, bp_context context, bp_buffer buffer, uint64_t offset,
                          void* data, uint64_t bytes) {
  (void)device, (void)stream;
  memory* from = (memory*)buffer;
  if (offset > from->bytes || bytes > from->bytes - offset) return host->fail(context, BP_INVALID, "beyond the buffer");
  memcpy(data, from->data + offset, bytes);
  return BP_OK;
}

bp_status backplane_plugin_v1(const bp_host* from, bp_context context, bp_tables* tables) {
  (void)context;
  host = from;
  bp_driver_table driver;
  memset(&driver, 0, sizeof(driver));
  driver.abi_minor = BP_ABI_MINOR;
  driver.name = OLD_PLUGIN_NAME;
  driver.version = "1";
  driver.count = count;
  driver.open = open_device;
  driver.close = close_device;
  fill(tables->driver, tables->driver->size, &driver, sizeof(driver));
  bp_device_table device;
  memset(&device, 0, sizeof(device));
  device.caps = caps;
  device.supports = supports;
  device.run = run;
  fill(tables->device, tables->device->size, &device, sizeof(device));
  bp_buffer_table buffer;
  memset(&buffer, 0, sizeof(buffer));
  buffer.alloc = alloc;
  buffer.free = free_buffer;
  buffer.upload = upload;
  buffer.download = download;
  fill(tables->buffer, tables->buffer->size, &buffer, sizeof(buffer));
  return BP_OK;
}
