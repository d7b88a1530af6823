/* Has streams that can be created and never awaited, and complete graphs. */
#include "fake_plugin.h"

static bp_status create(bp_device device, bp_context context, bp_stream* stream) {
  (void)device, (void)context;
  *stream = (bp_stream)&fake_object;
  return BP_OK;
}

static bp_status begin(bp_device device, bp_stream stream, bp_context context) {
  (void)device, (void)stream, (void)context;
  return BP_OK;
}

static bp_status end(bp_device device, bp_stream stream, bp_context context, bp_graph* graph) {
  (void)device, (void)stream, (void)context;
  *graph = (bp_graph)&fake_object;
  return BP_OK;
}

static bp_status launch(bp_device device, bp_stream stream, bp_context context, bp_graph graph) {
  (void)device, (void)stream, (void)context, (void)graph;
  return BP_OK;
}

static void destroy(bp_device device, bp_graph graph) { (void)device, (void)graph; }

bp_status backplane_plugin_v1(const bp_host* host, bp_context context, bp_tables* tables) {
  (void)context;
  fake_fill(host, tables, "half_group");
  tables->stream->create = create;
  tables->graph->capture_begin = begin;
  tables->graph->capture_end = end;
  tables->graph->launch = launch;
  tables->graph->destroy = destroy;
  return BP_OK;
}
