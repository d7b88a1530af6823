#include "tests/conformance/stream.h"

namespace backplane::conformance {

Stream::Stream(device::Device& device) : device_(device) {
  if (!has_streams(device)) throw Skipped{"the plugin has no stream table"};
  AbiCall call;
  call.check(device.tables().stream->create(device.handle(), call.context(), &stream_), "stream.create");
  require(stream_ != nullptr, "stream.create: success without a stream");
}

Stream::~Stream() { device_.tables().stream->destroy(device_.handle(), stream_); }

bp_status Stream::sync() {
  AbiCall call;
  return device_.tables().stream->sync(device_.handle(), stream_, call.context());
}

bp_status settled(device::Device& device, const std::function<bp_status(bp_stream, bp_context)>& function) {
  AbiCall call;
  if (!has_streams(device)) return function(nullptr, call.context());
  Stream stream(device);
  const bp_status status = function(stream.get(), call.context());
  return status == BP_OK ? stream.sync() : status;
}

}  // namespace backplane::conformance
