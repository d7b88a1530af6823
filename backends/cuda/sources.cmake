# The backend's sources, for the plugin and for its emulated twin in tests/plugins/cuda_emulated.
set(BACKPLANE_CUDA_HOST_SOURCES
  buffers.cc cache_ops.cc cublaslt.cc device.cc dispatch.cc fused.cc kv.cc move.cc ops.cc plugin.cc runtime.cc streams.cc
  weights.cc)
set(BACKPLANE_CUDA_KERNEL_SOURCES
  attention.cu attention_prefill.cu elementwise.cu embed.cu heads.cu largest.cu linear.cu linear_many.cu
  linear_narrow.cu move.cu norm.cu pages.cu repack.cu rope.cu sample.cu select.cu)
list(TRANSFORM BACKPLANE_CUDA_HOST_SOURCES PREPEND "${CMAKE_CURRENT_LIST_DIR}/")
list(TRANSFORM BACKPLANE_CUDA_KERNEL_SOURCES PREPEND "${CMAKE_CURRENT_LIST_DIR}/")
