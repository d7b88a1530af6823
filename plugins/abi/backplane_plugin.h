/* Backplane plugin ABI, major version 1. SPDX-License-Identifier: MIT
 *
 * The only contract between the Backplane core and a plugin that drives an accelerator. Plain C11, also valid C++; it
 * includes nothing but <stdint.h> and <stddef.h>. A plugin is a shared library that exports one function,
 * backplane_plugin_v1, and a small JSON manifest beside it (plugins/GUIDE.md).
 *
 *   1 conventions   2 types and tensors   3 host   4 driver   5 device   6 buffers   7 streams   8 step descriptor
 *   9 ops           10 weights            11 KV cache         12 graphs  13 collectives          14 entry point
 *
 * 1. CONVENTIONS
 *
 * Growth. A struct whose first member is `size` may grow at its end in a later minor version. Whoever allocates it
 * zeroes it and sets `size` to its own sizeof; the other side reads and writes only members that lie inside `size`.
 * Such a struct is always passed by pointer and never embedded by value; an array of them carries its stride. A struct
 * marked FROZEN never changes. Members, table slots and enum values are only ever appended, never moved or renumbered.
 * A later member that is zero means what its absence meant. What changes a result or asks for something comes with a
 * bit (a feature, a flag, a use) as well, because whoever was built before it can refuse a bit, but can't see a member.
 * In what a plugin answers (caps, support, device_info) unknown bits and members are ignored: they only add to a
 * promise. plugins/VERSIONING.md has the rules in full, with the test that guards each of them.
 *
 * Tables. The core allocates, zeroes and stamps every function table; the plugin writes min(table->size, its own
 * sizeof) bytes, leaving `size` as it is. NULL means "not implemented", for ever. Eleven functions are required: the
 * entry point (query), driver count, open, close, device caps, supports, run, buffer alloc, free, upload, download.
 *
 * Status. Functions that can fail return a bp_status; outputs are only read after BP_OK. The reason, for people, goes
 * through host->fail(context, status, text), with the context that the failing call was given. Nothing throws, aborts
 * or exits across this boundary. An unknown type, kind, flag, use, feature or op code is answered with BP_UNSUPPORTED;
 * an unknown status is read as BP_INTERNAL.
 *
 * Threads. All functions may be called from any thread at any time, except that one stream (and what was captured from
 * it) is used by one thread at a time, and an object is destroyed only when no call on it is running. There is no
 * current device and no thread-local state. host->parallel_for must not be called with a lock held.
 *
 * Ownership. Whoever creates an object destroys it: every create/alloc/open has its destroy/free/close, and the core
 * calls them in reverse order. Pointers passed in are valid until the call returns, unless a member says otherwise.
 * Strings are UTF-8 and end with NUL. Sizes and offsets are bytes, counts are elements. Scalars are double.
 */
#ifndef BACKPLANE_PLUGIN_H_
#define BACKPLANE_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BP_ABI_MAJOR 1
#define BP_ABI_MINOR 0

#if defined(_WIN32)
#define BP_EXPORT __declspec(dllexport)
#else
#define BP_EXPORT __attribute__((visibility("default")))
#endif

typedef int32_t bp_status;
enum {
  BP_OK = 0,
  BP_UNSUPPORTED = 1,   /* not implemented or refused; from `run` it is a bug of the plugin */
  BP_OUT_OF_MEMORY = 2, /* device or host memory; nothing was changed */
  BP_INVALID = 3,       /* an argument contradicts this header */
  BP_DEVICE_LOST = 4,   /* the device and all it holds is gone; only destroy functions may follow */
  BP_INTERNAL = 5,      /* anything else that went wrong inside the plugin */
  BP_UNAVAILABLE = 6    /* no driver, no such device, or no permission: cannot start here */
};

/* Opaque handles. NULL is never a valid one; where NULL may be passed, the member says so. */
typedef struct bp_context_s* bp_context; /* of the core: one call, see host->fail */
typedef struct bp_device_s* bp_device;   /* of the plugin, from here on */
typedef struct bp_buffer_s* bp_buffer;
typedef struct bp_stream_s* bp_stream; /* NULL where the plugin has no stream table: everything is synchronous */
typedef struct bp_event_s* bp_event;
typedef struct bp_prepared_s* bp_prepared; /* what device->prepare built for one op */
typedef struct bp_compiled_s* bp_compiled; /* what device->compile built for a list of ops */
typedef struct bp_weight_s* bp_weight;     /* a weight in the plugin's own layout */
typedef struct bp_kv_s* bp_kv;             /* a KV cache in the plugin's own layout */
typedef struct bp_graph_s* bp_graph;       /* captured work */
typedef struct bp_comm_s* bp_comm;         /* one rank of a group of devices */

/* ---------------------------------------------------------------------------------------------------------------- */
/* 2. TYPES AND TENSORS */

/* Element and block types, below 256. The quantized ones are GGUF's blocks, byte for byte, in little-endian order. */
typedef uint32_t bp_type;
enum {
  BP_TYPE_NONE = 0, /* an absent tensor; "no preference" */
  BP_TYPE_F64 = 1,
  BP_TYPE_F32 = 2,
  BP_TYPE_F16 = 3,
  BP_TYPE_BF16 = 4,
  BP_TYPE_F8_E4M3 = 5, /* the variant without infinities (E4M3FN) */
  BP_TYPE_F8_E5M2 = 6,
  BP_TYPE_I64 = 16,
  BP_TYPE_I32 = 17,
  BP_TYPE_I16 = 18,
  BP_TYPE_I8 = 19,
  BP_TYPE_U64 = 20,
  BP_TYPE_U32 = 21,
  BP_TYPE_U16 = 22,
  BP_TYPE_U8 = 23,
  BP_TYPE_BOOL = 24,   /* one byte, 0 or 1 */
  BP_TYPE_Q4_0 = 32,   /* 32 values in 18 bytes */
  BP_TYPE_Q4_1 = 33,   /* 32 in 20 */
  BP_TYPE_Q5_0 = 34,   /* 32 in 22 */
  BP_TYPE_Q5_1 = 35,   /* 32 in 24 */
  BP_TYPE_Q8_0 = 36,   /* 32 in 34 */
  BP_TYPE_Q2_K = 48,   /* 256 in 84 */
  BP_TYPE_Q3_K = 49,   /* 256 in 110 */
  BP_TYPE_Q4_K = 50,   /* 256 in 144 */
  BP_TYPE_Q5_K = 51,   /* 256 in 176 */
  BP_TYPE_Q6_K = 52,   /* 256 in 210 */
  BP_TYPE_IQ4_NL = 56, /* 32 in 18 */
  BP_TYPE_IQ4_XS = 57, /* 256 in 136 */
  BP_TYPE_MXFP4 = 60   /* 32 in 17 */
};

/* FROZEN. A set of types: type t is in it when bit t % 64 of bits[t / 64] is 1. */
typedef struct bp_type_set {
  uint64_t bits[4];
} bp_type_set;

/* FROZEN. A view of a buffer. Never a raw pointer, so that memory may be opaque to the host.
 * Two views of one op never overlap unless the op says that it works in place; then they are the same view. */
typedef struct bp_tensor {
  bp_buffer buffer;  /* NULL in supports, prepare and compile, where only type and shape are known */
  uint64_t offset;   /* of the first element in the buffer, a multiple of bp_caps.alignment for a whole tensor; a view
                        of a part starts at any element (quantized: block) */
  bp_type type;      /* BP_TYPE_NONE: this optional tensor is absent, and no other member means anything */
  uint32_t rank;     /* 1 to 4 */
  int64_t shape[4];  /* elements, outermost dimension first; a 0 makes the op do nothing; unused ones are 1 */
  int64_t stride[4]; /* bytes from one index to the next; the innermost is the size of one element (quantized: block)
                        except where an op says otherwise; unused ones are 0 */
} bp_tensor;

/* FROZEN. A weight matrix W[N,C]: N rows (outputs) of C columns (inputs). Either `weight` (imported, see 10) or, with
 * weight == NULL, canonical data in `tensor`: rows of the file's own blocks. `tensor` carries type and shape always. */
typedef struct bp_matrix {
  bp_weight weight;
  bp_tensor tensor;
} bp_matrix;

/* ---------------------------------------------------------------------------------------------------------------- */
/* 3. HOST: what the core offers to a plugin. Valid for as long as the process lives. */

enum { BP_LOG_TRACE = 0, BP_LOG_DEBUG = 1, BP_LOG_INFO = 2, BP_LOG_WARNING = 3, BP_LOG_ERROR = 4 };

/* Items [begin, end) of a loop, on worker `worker` < host->threads(). Must not throw. */
typedef void (*bp_loop_body)(void* argument, uint64_t begin, uint64_t end, uint32_t worker);

typedef struct bp_host {
  uint64_t size;
  uint32_t abi_major;
  uint32_t abi_minor; /* what this core knows; a plugin may use less, never more */
  void* self;         /* to be passed back as the first argument of log, parallel_for, threads, query_extension */
  /* One line of text. The only way for a plugin to print. */
  void (*log)(void* self, int32_t level, const char* component, const char* text);
  /* Keeps the reason for a failing call and returns `status`, so that `return host->fail(context, s, "why")` works.
   * The text is copied. The first text of a call wins. `context` may be NULL: then nothing is kept. */
  bp_status (*fail)(bp_context context, bp_status status, const char* text);
  /* Runs body over [0, n) on the core's threads, at least `grain` items a call, and returns when all is done. The split
   * is static: it depends on n, grain and threads() only. From inside a body it runs in place. */
  void (*parallel_for)(void* self, uint64_t n, uint64_t grain, bp_loop_body body, void* argument);
  /* How many workers a loop may use; constant for the life of a device. */
  uint32_t (*threads)(void* self);
  /* A table outside this header, by name, or NULL where this core has none. */
  const void* (*query_extension)(void* self, const char* name);
} bp_host;

/* ---------------------------------------------------------------------------------------------------------------- */
/* 4. DRIVER: the devices a plugin has. */

/* What can be said about a device without opening it. */
typedef struct bp_device_info {
  uint64_t size;
  char name[32];         /* what follows "plugin:" in a device name, such as "f32" or "0": letters, digits, . _ - */
  char description[128]; /* for people, such as "GeForce RTX 5090, 32 GiB" */
  uint64_t memory_total; /* bytes, 0 if unknown */
} bp_device_info;

enum {
  BP_OPEN_DETERMINISTIC = 1 << 0 /* BP_CAP_DETERMINISTIC and BP_CAP_BATCH_INVARIANT, at whatever cost; open fails if
                                    that can't be */
};

typedef struct bp_open_params {
  uint64_t size;
  uint64_t flags;      /* BP_OPEN_*; an unknown one: BP_UNSUPPORTED */
  const char* options; /* "key=value,key=value" from the user, or NULL; an unknown key: BP_INVALID */
} bp_open_params;

typedef struct bp_driver_table {
  uint64_t size;
  uint32_t abi_minor; /* filled by the plugin: the minor version it was built against */
  uint32_t reserved;
  const char* name;    /* filled by the plugin, static: "cpu"; letters, digits, _ - */
  const char* version; /* filled by the plugin, static, free form, or NULL */
  /* REQUIRED. How many devices there are; quick, and opens none. No driver: BP_UNAVAILABLE with the reason. */
  bp_status (*count)(bp_context context, uint32_t* devices);
  /* REQUIRED. Opens device `index` < count; opening it twice gives two independent devices. */
  bp_status (*open)(bp_context context, uint32_t index, const bp_open_params* params, bp_device* device);
  /* REQUIRED. After everything made from the device was destroyed. Waits for work in flight. */
  void (*close)(bp_device device);
  /* Optional; without it the device is named by its index. One that can't be used fails with the reason, and is listed
   * with both if `info` has its name. */
  bp_status (*describe)(bp_context context, uint32_t index, bp_device_info* info);
} bp_driver_table;

/* ---------------------------------------------------------------------------------------------------------------- */
/* 5. DEVICE: what it can do, and doing it. */

enum {
  BP_CAP_HOST_VISIBLE = 1 << 0,   /* buffer->map works on buffers of every kind, and all caches are coherent */
  BP_CAP_UNIFIED = 1 << 1,        /* device memory is the host's own: counted once against the host's */
  BP_CAP_DETERMINISTIC = 1 << 2,  /* the same call on the same bits gives the same bits */
  BP_CAP_BATCH_INVARIANT = 1 << 3 /* a token's results do not depend on the other tokens of the step */
};

/* Filled by the plugin; constant while the device is open, but for memory_free. */
typedef struct bp_caps {
  uint64_t size;
  char name[32]; /* as in bp_device_info */
  char description[128];
  uint64_t flags;          /* BP_CAP_* */
  bp_type activation_type; /* what it computes in best: the core keeps activations in this type */
  uint32_t alignment;      /* of tensors and workspaces in buffers, a power of two, at least 1; imported host memory
                              may start at any multiple of its element's size */
  bp_type_set activation_types; /* what `run` takes for activations */
  bp_type_set weight_types;     /* canonical weight types LINEAR or EMBED take in a buffer, without import */
  bp_type_set kv_types;         /* element types its KV cache can have */
  uint32_t page_sizes[8];       /* tokens a KV page, best first, 0 after the last; all 0: any */
  uint32_t max_head_dim;        /* attention; 0: any */
  uint32_t max_tokens;          /* tokens in a step; 0: any */
  uint64_t max_buffer_bytes;    /* one allocation; 0: any */
  uint64_t memory_total;        /* bytes, 0: unknown */
  uint64_t memory_free;         /* bytes at this moment, 0: unknown */
  uint8_t memory_id[16]; /* devices of any plugin with the same one share their memory: of a GPU the UUID that its
                            driver tells; all 0: nobody else's, but for BP_CAP_UNIFIED */
} bp_caps;

typedef struct bp_op bp_op; /* section 9 */

/* The question that `supports`, `prepare` and the planner ask about one op. Only types, shapes and options of the two
 * argument structs are set (strides included), buffers and the step's array pointers are NULL. Nested structs such as
 * step and norm are there in both whenever run will have them. Every shape between the two may come at run time. */
typedef struct bp_op_query {
  uint64_t size;
  uint32_t code;        /* BP_OP_* */
  uint32_t layer;       /* as in bp_op */
  const void* smallest; /* argument struct of that op: the smallest shape in each dimension */
  const void* largest;  /* the largest; its step holds the largest counts */
  uint64_t features;    /* BP_FEATURE_* that these arguments use */
  const char* name;     /* a label such as "layers.3.attention.q", for messages; may be NULL */
} bp_op_query;

enum {
  BP_SUPPORT_CAPTURE_SAFE = 1 << 0,  /* may run between graph->capture_begin and capture_end */
  BP_SUPPORT_DETERMINISTIC = 1 << 1, /* as the capability, for this op */
  BP_SUPPORT_BATCH_INVARIANT = 1 << 2,
  BP_SUPPORT_FLUSHES_DENORMALS = 1 << 3 /* denormal inputs or results may become zero */
};

/* The answer, filled by the plugin. */
typedef struct bp_support {
  uint64_t size;
  uint64_t features;        /* all BP_FEATURE_* of this op that it honors. One the query needs and that isn't here means
                               no: an older plugin can't silently ignore an attribute it has never heard of */
  uint64_t workspace_bytes; /* for `largest`; the core supplies it with each run */
  uint64_t flags;           /* BP_SUPPORT_* */
  bp_type activation_type;  /* in which activations must come and go; BP_TYPE_NONE: as asked. The core casts */
  bp_type accumulator_type; /* in which sums are kept; with the next two, what a cross-check may expect of rounding */
  bp_type quantized_activation_type; /* activations are rounded to this first, unless NONE. Q8_0: GGUF's blocks of 32;
                                        I8: with a scale in F32; I16: as I8, and what that leaves over again as I8 */
  uint32_t reserved;
} bp_support;

typedef struct bp_device_table {
  uint64_t size;
  /* REQUIRED. */
  bp_status (*caps)(bp_device device, bp_context context, bp_caps* caps);
  /* REQUIRED. Asked once for each op when a model is planned. BP_OK: yes, `support` says how. BP_UNSUPPORTED: no, with
   * the reason through host->fail; the core then runs the op elsewhere. */
  bp_status (*supports)(bp_device device, bp_context context, const bp_op_query* query, bp_support* support);
  /* REQUIRED. Runs one op, or enqueues it on the stream. Allocates nothing. Only ops that `supports` agreed to. */
  bp_status (*run)(bp_device device, bp_stream stream, bp_context context, const bp_op* op);
  /* Optional, in pairs: builds once what `run` then finds in bp_op.prepared (a primitive, an algorithm, a pipeline). */
  bp_status (*prepare)(bp_device device, bp_context context, const bp_op_query* query, bp_prepared* prepared);
  void (*unprepare)(bp_device device, bp_prepared prepared);
  /* Optional, for accelerators that take whole blocks: ops to be run in this order. `ops` is an array with the given
   * stride; buffers are set and stay, contents change. While outputs of single ops are watched, the core uses run. */
  bp_status (*compile)(bp_device device, bp_context context, const bp_op* ops, uint64_t count, uint64_t stride,
                       bp_compiled* compiled);
  bp_status (*run_compiled)(bp_device device, bp_stream stream, bp_context context, bp_compiled compiled);
  void (*uncompile)(bp_device device, bp_compiled compiled);
} bp_device_table;

/* ---------------------------------------------------------------------------------------------------------------- */
/* 6. BUFFERS */

typedef uint32_t bp_memory;
enum {
  BP_MEMORY_DEVICE = 0,  /* where ops run fastest */
  BP_MEMORY_PINNED = 1,  /* host memory that the device reaches directly: staging */
  BP_MEMORY_UNIFIED = 2, /* both sides, moved by the driver */
  BP_MEMORY_IMPORTED = 3 /* reported only: a range of host memory, see import_host */
};

typedef struct bp_buffer_table {
  uint64_t size;
  /* REQUIRED. Contents are undefined. An unsupported kind: BP_UNSUPPORTED; DEVICE always works. bytes > 0. */
  bp_status (*alloc)(bp_device device, bp_context context, uint64_t bytes, bp_memory kind, bp_buffer* buffer);
  /* REQUIRED. After the work that uses it is done. */
  void (*free)(bp_device device, bp_buffer buffer);
  /* REQUIRED. Host to buffer and back, ordered on the stream. With a stream, `data` stays valid until the stream is
   * synchronized or the call returned with pageable memory copied; download has completed only after a sync. */
  bp_status (*upload)(bp_device device, bp_stream stream, bp_context context, bp_buffer buffer, uint64_t offset,
                      const void* data, uint64_t bytes);
  bp_status (*download)(bp_device device, bp_stream stream, bp_context context, bp_buffer buffer, uint64_t offset,
                        void* data, uint64_t bytes);
  /* Optional. The host's address of the buffer, valid until it is freed. Needed for BP_CAP_HOST_VISIBLE. */
  bp_status (*map)(bp_device device, bp_context context, bp_buffer buffer, void** address);
  /* Optional. A buffer over host memory that stays the core's and outlives the buffer: a mapped file (read-only, then
   * `writable` is 0), the core's own KV pages, another device's mapped memory. */
  bp_status (*import_host)(bp_device device, bp_context context, void* address, uint64_t bytes, uint32_t writable,
                           bp_buffer* buffer);
  /* Optional. Inside the device, ordered on the stream; the ranges don't overlap. */
  bp_status (*copy)(bp_device device, bp_stream stream, bp_context context, bp_buffer to, uint64_t to_offset,
                    bp_buffer from, uint64_t from_offset, uint64_t bytes);
} bp_buffer_table;

/* ---------------------------------------------------------------------------------------------------------------- */
/* 7. STREAMS: optional as a whole. Without them every call has completed when it returns. */

typedef struct bp_stream_table {
  uint64_t size;
  bp_status (*create)(bp_device device, bp_context context, bp_stream* stream);
  void (*destroy)(bp_device device, bp_stream stream); /* waits for its work */
  /* Waits for all work enqueued so far. A failure of that work surfaces here (or in an earlier call on the stream),
   * with its reason, and stays with the stream: every later call on it returns the same status. */
  bp_status (*sync)(bp_device device, bp_stream stream, bp_context context);
  /* Optional from here, as a group: points in a stream that another stream (event_wait) or the host (event_sync) can
   * wait for. event_sync returns the failure of work before the point, where there is one. */
  bp_status (*event_create)(bp_device device, bp_context context, bp_event* event);
  void (*event_destroy)(bp_device device, bp_event event);
  bp_status (*event_record)(bp_device device, bp_stream stream, bp_context context, bp_event event);
  bp_status (*event_wait)(bp_device device, bp_stream stream, bp_context context, bp_event event);
  bp_status (*event_sync)(bp_device device, bp_context context, bp_event event);
} bp_stream_table;

/* ---------------------------------------------------------------------------------------------------------------- */
/* 8. STEP DESCRIPTOR
 * One step computes T tokens of B sequences, ragged and without padding: sequence b has the tokens
 * [q_start[b], q_start[b+1]).
 * Sequences that decode come first, n_decode of them; those that prefill follow. R tokens need logits. KV memory is
 * paged: a page holds page_size tokens of one layer, and layers with the same reach (full attention, each window size)
 * form a group that shares page numbers: G groups, at most M pages for a sequence in a group.
 *
 * The arrays exist twice: on the host (the pointers, valid until `run` returns) and on the device, at the given offsets
 * of `buffer`. Buffer and offsets stay the same from step to step, so that captured work finds the new contents in
 * place. */
typedef struct bp_step {
  uint64_t size;
  uint32_t tokens;    /* T */
  uint32_t sequences; /* B */
  uint32_t rows;      /* R */
  uint32_t n_decode;  /* sequences [0, n_decode) decode */
  uint32_t groups;    /* G */
  uint32_t page_size; /* S */
  uint32_t max_pages; /* M */
  uint32_t max_q;     /* the most tokens of one sequence in this step */
  uint32_t max_kv;    /* the largest kv_len */
  uint32_t reserved;
  const int32_t* token;   /* [T] token ids, each inside the vocabulary */
  const int32_t* pos;     /* [T] position in its sequence, from 0 */
  const int32_t* q_start; /* [B+1] */
  const int32_t* kv_len;  /* [B] tokens of the sequence in the cache, this step's included: the last token of b in this
                             step has pos kv_len[b] - 1 */
  const int32_t* page_table; /* [G,B,M] page of the sequence's tokens [m*S, (m+1)*S); -1 where it holds none, because it
                                is not that long or the window has passed */
  const int64_t* slot;       /* [G,T] where the token's K and V go: page * S + offset in the page; -1: nowhere */
  const int32_t* rope_row;   /* [T] row of the rope tables */
  const int32_t* out_row;    /* [R] tokens that need logits */
  const int32_t* state_slot; /* [B] slot of per-sequence state for layers that keep one; NULL: the model has none */
  bp_buffer buffer;          /* NULL: this device's ops need no device copy */
  uint64_t token_offset, pos_offset, q_start_offset, kv_len_offset, page_table_offset, slot_offset, rope_row_offset,
      out_row_offset, state_slot_offset;
} bp_step;

/* ---------------------------------------------------------------------------------------------------------------- */
/* 9. OPS
 *
 * Letters: T tokens, R rows that need logits, H hidden size, C inputs and N outputs of a matrix, V vocabulary, Hq query
 * and Hk KV heads (Hq is a multiple of Hk; query head h reads KV head h / (Hq / Hk)), D head size of q and k, Dv of v,
 * F feed-forward size, P pages, S page size. Activation tensors are floating point (F64, F32, F16, BF16), and all those
 * of one op have one type. Norm weights, biases and sinks are F32 (on a device that computes in F64: F64). */
enum {
  /* Single ops: a decoder needs nothing else. */
  BP_OP_EMBED = 1,        /* bp_embed_args */
  BP_OP_NORM = 2,         /* bp_norm_args */
  BP_OP_LINEAR = 3,       /* bp_linear_args */
  BP_OP_ROPE = 4,         /* bp_rope_args */
  BP_OP_KV_WRITE = 5,     /* bp_kv_write_args */
  BP_OP_ATTN_PREFILL = 6, /* bp_attention_args */
  BP_OP_ATTN_DECODE = 7,  /* bp_attention_args */
  BP_OP_ACT = 8,          /* bp_activation_args */
  BP_OP_GLU = 9,          /* bp_glu_args */
  BP_OP_ADD = 10,         /* bp_binary_args */
  BP_OP_MUL = 11,         /* bp_binary_args */
  BP_OP_SCALE = 12,       /* bp_scalar_args */
  BP_OP_GATHER_ROWS = 13, /* bp_gather_args */
  BP_OP_CAST = 14,        /* bp_unary_args */
  BP_OP_COPY = 15,        /* bp_unary_args */
  BP_OP_FILL = 16,        /* bp_scalar_args */
  BP_OP_SOFTCAP = 17,     /* bp_scalar_args */
  BP_OP_TOPK = 18,        /* bp_topk_args */
  BP_OP_SAMPLE = 19,      /* bp_sample_args */
  BP_OP_ADVANCE = 20,     /* bp_advance_args */
  /* Fused ops: the core runs their parts where a plugin lacks them. The result is that of the parts, rounding apart. */
  BP_OP_ADD_NORM = 64,       /* bp_add_norm_args: ADD, NORM */
  BP_OP_QKV_ROPE_WRITE = 65, /* bp_qkv_args: NORM, three LINEAR, two NORM, ROPE, KV_WRITE */
  BP_OP_GATEUP_GLU = 66,     /* bp_gateup_args: NORM, two LINEAR, GLU */
  BP_OP_LINEAR_ADD = 67,     /* bp_linear_args with residual: LINEAR, ADD */
  BP_OP_HEAD_ARGMAX = 68,    /* bp_head_argmax_args: LINEAR, TOPK with k = 1 */
  BP_OP_LINEAR_ACT = 69      /* bp_linear_args with x_norm, kind: NORM, LINEAR, ACT */
};

/* Attributes that change a result: what an op's arguments use must be in bp_support.features. No two of them share
 * a bit, since fused ops have those of all their parts. Bits from 31 on will be macros of uint64_t, because an
 * enumerator is an int. */
enum {
  BP_FEATURE_STRIDED = 1 << 0, /* any op: a tensor with gaps between its rows (quantized: between its blocks' rows) */
  BP_FEATURE_BIAS = 1 << 1,    /* NORM, LINEAR and all that contain them */
  /* NORM and all that contain it */
  BP_FEATURE_NORM_LAYER = 1 << 8,
  BP_FEATURE_NORM_NO_WEIGHT = 1 << 9,
  BP_FEATURE_NORM_UNIT_OFFSET = 1 << 10,
  /* ROPE and QKV_ROPE_WRITE */
  BP_FEATURE_ROPE_INTERLEAVED = 1 << 12,
  BP_FEATURE_ROPE_PARTIAL = 1 << 13,
  BP_FEATURE_QK_NORM = 1 << 14,
  BP_FEATURE_NO_ROPE = 1 << 15,
  /* KV_WRITE, ATTN_PREFILL, ATTN_DECODE, QKV_ROPE_WRITE */
  BP_FEATURE_KV_CANONICAL = 1 << 16, /* K and V in canonical pages instead of the plugin's own bp_kv */
  BP_FEATURE_ATTN_WINDOW = 1 << 17,
  BP_FEATURE_ATTN_SOFTCAP = 1 << 18,
  BP_FEATURE_ATTN_SINKS = 1 << 19,
  BP_FEATURE_ATTN_VALUE_DIM = 1 << 20, /* Dv differs from D */
  /* ADD, MUL, ADD_NORM, LINEAR_ADD */
  BP_FEATURE_BROADCAST = 1 << 22, /* b has one row */
  BP_FEATURE_ALPHA = 1 << 23,     /* alpha is not 1 */
  /* ACT, GLU, GATEUP_GLU, LINEAR_ACT: the kind in use */
  BP_FEATURE_GELU_ERF = 1 << 24,
  BP_FEATURE_GELU_TANH = 1 << 25,
  BP_FEATURE_SILU = 1 << 26,
  BP_FEATURE_RELU = 1 << 27,
  /* LINEAR, EMBED and all that contain them: a weight whose rows are not contiguous (stored transposed) */
  BP_FEATURE_TRANSPOSED = 1 << 28,
  BP_FEATURE_X_NORM = 1 << 29 /* QKV_ROPE_WRITE, GATEUP_GLU, LINEAR_ACT: x_norm is there */
};

struct bp_op {
  uint64_t size;
  uint32_t code;        /* BP_OP_* */
  uint32_t layer;       /* of the model, from 0; UINT32_MAX outside the layers */
  const void* args;     /* the op's argument struct */
  bp_prepared prepared; /* for this op, or NULL where the plugin has no prepare */
  bp_buffer workspace;  /* NULL where bp_support.workspace_bytes was 0 */
  uint64_t workspace_offset;
  uint64_t workspace_bytes;
  const char* name; /* the same label as in the query; may be NULL */
};

/* out[t] = table[ids[t]]. Ids outside [0, V) are BP_INVALID. */
typedef struct bp_embed_args {
  uint64_t size;
  bp_tensor ids;   /* i32 [T] */
  bp_matrix table; /* [V,H] */
  bp_tensor out;   /* [T,H] */
} bp_embed_args;

enum { BP_NORM_RMS = 1, BP_NORM_LAYER = 2 };

/* Over each row of the innermost dimension, n = its length:
 *   RMS:   out = x / sqrt(sum(x^2) / n + eps) * w
 *   LAYER: out = (x - mean(x)) / sqrt(sum((x - mean(x))^2) / n + eps) * w + b
 * with w = unit_offset + weight. Per-head norms come as [T,h,D]. In place when out is x. */
typedef struct bp_norm_args {
  uint64_t size;
  bp_tensor x;      /* [T,H] or [T,h,D] */
  bp_tensor weight; /* [H] or [D]; absent: w = 1 */
  bp_tensor bias;   /* as weight, or absent */
  bp_tensor out;    /* as x */
  double eps;
  double unit_offset; /* 0, or 1 for models that store w - 1 */
  uint32_t kind;      /* BP_NORM_* */
  uint32_t reserved;
} bp_norm_args;

/* LINEAR: out = x W^T + bias. LINEAR_ADD: out = residual + alpha * (x W^T + bias), in place when out is residual.
 * LINEAR_ACT: out = f(x W^T + bias), f as ACT defines it.
 *
 * x_norm, here and in bp_qkv_args and bp_gateup_args: x is its out, the norm of x_norm->x, which the op makes itself. x
 * then is scratch, always there, that it may use or leave alone; it shares no memory with x_norm->x. */
typedef struct bp_linear_args {
  uint64_t size;
  bp_tensor x;                /* [T,C] */
  bp_matrix weight;           /* [N,C] */
  bp_tensor bias;             /* [N] or absent */
  bp_tensor out;              /* [T,N] */
  bp_tensor residual;         /* [T,N], LINEAR_ADD only */
  double alpha;               /* LINEAR_ADD only */
  const bp_norm_args* x_norm; /* or NULL; LINEAR_ACT only */
  uint32_t kind;              /* BP_ACT_*, or 0: f(x) = x; LINEAR_ACT only */
  uint32_t reserved;
} bp_linear_args;

/* Rotary position embedding, in place. For token t, r = row[t], each head and each pair i < n_dims / 2:
 *   angle = pos[t] * inv_freq[r,i];  c = cos(angle) * scale[r];  s = sin(angle) * scale[r]
 *   (a, b) -> (a c - b s, a s + b c)
 * The pair (a, b) is (x[i], x[i + n_dims/2]), or (x[2i], x[2i+1]) when interleaved. Elements from n_dims on stay. Any
 * scaling of frequencies (linear, NTK, YaRN, llama3, longrope) is data in the tables, which the core computes in
 * double. */
typedef struct bp_rope_args {
  uint64_t size;
  bp_tensor x;        /* [T,h,D] */
  bp_tensor pos;      /* i32 [T] */
  bp_tensor row;      /* i32 [T], each < F */
  bp_tensor inv_freq; /* f64 [F,n_dims/2] */
  bp_tensor scale;    /* f64 [F] */
  uint32_t n_dims;    /* even, at most D */
  uint32_t interleaved;
} bp_rope_args;

/* The KV cache of one layer. With kv: the plugin's own pages (section 11). With kv == NULL: canonical pages,
 * token-major, every one contiguous; they may lie in imported host memory. */
typedef struct bp_kv_write_args {
  uint64_t size;
  const bp_step* step; /* slot[group] says where each token goes; no two tokens go to one slot */
  bp_tensor k;         /* [T,Hk,D] */
  bp_tensor v;         /* [T,Hk,Dv] */
  bp_kv kv;
  bp_tensor k_pages; /* [P,S,Hk,D], canonical only */
  bp_tensor v_pages; /* [P,S,Hk,Dv], canonical only */
  uint32_t layer;    /* index into bp_kv_desc.layers */
  uint32_t group;
} bp_kv_write_args;

/* Causal attention over the pages, for sequences [first_sequence, last_sequence) of the step: ATTN_DECODE gets those
 * that decode (a few tokens each), ATTN_PREFILL the others; both mean the same. For a token at position p and head h:
 *   keys j with 0 <= j <= p, and j > p - window if window > 0
 *   score_j = scale * dot(q, k_j);  if softcap > 0: score_j = softcap * tanh(score_j / softcap)
 *   out = sum_j exp(score_j) v_j / (sum_j exp(score_j) + exp(sinks[h]) if there are sinks)
 * This step's own K and V are in the pages already. Tokens of other sequences are left alone in out. */
typedef struct bp_attention_args {
  uint64_t size;
  const bp_step* step;
  bp_tensor q;     /* [T,Hq,D], all tokens of the step */
  bp_tensor out;   /* [T,Hq,Dv] */
  bp_tensor sinks; /* [Hq] or absent */
  bp_kv kv;        /* or canonical pages, as in bp_kv_write_args */
  bp_tensor k_pages;
  bp_tensor v_pages;
  uint32_t layer;
  uint32_t group;
  uint32_t first_sequence;
  uint32_t last_sequence;
  uint32_t kv_heads; /* Hk */
  uint32_t window;   /* tokens, the query's own included; 0: no window */
  double scale;
  double softcap; /* 0: none */
} bp_attention_args;

enum { BP_ACT_GELU_ERF = 1, BP_ACT_GELU_TANH = 2, BP_ACT_SILU = 3, BP_ACT_RELU = 4 };

/* out = f(x), with
 *   GELU_ERF   x/2 (1 + erf(x / sqrt 2))          GELU_TANH  x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
 *   SILU       x / (1 + exp(-x))                   RELU       max(x, 0)
 * In place when out is x. */
typedef struct bp_activation_args {
  uint64_t size;
  bp_tensor x;   /* [T,F] */
  bp_tensor out; /* [T,F] */
  uint32_t kind; /* BP_ACT_* */
  uint32_t reserved;
} bp_activation_args;

/* out = f(gate) * up. gate and up may be the halves of one [T,2F]. In place when out is gate. */
typedef struct bp_glu_args {
  uint64_t size;
  bp_tensor gate; /* [T,F] */
  bp_tensor up;   /* [T,F] */
  bp_tensor out;  /* [T,F] */
  uint32_t kind;  /* BP_ACT_* */
  uint32_t reserved;
} bp_glu_args;

/* ADD: out = a + alpha * b. MUL: out = alpha * a * b. b has a's shape, or one row for all. In place when out is a. */
typedef struct bp_binary_args {
  uint64_t size;
  bp_tensor a;
  bp_tensor b;
  bp_tensor out;
  double alpha;
} bp_binary_args;

/* SCALE: out = value * x. SOFTCAP: out = value * tanh(x / value). FILL: out = value, x is absent, any plain type. */
typedef struct bp_scalar_args {
  uint64_t size;
  bp_tensor x;
  bp_tensor out; /* in place when out is x */
  double value;
} bp_scalar_args;

/* out[r] = x[index[r]]. */
typedef struct bp_gather_args {
  uint64_t size;
  bp_tensor x;     /* [T,H] */
  bp_tensor index; /* i32 [R] */
  bp_tensor out;   /* [R,H] */
} bp_gather_args;

/* CAST: between any two float types, rounding to nearest even, or from a quantized type to a float type
 * (dequantization, as GGUF defines it, in float32). COPY: the same type and shape; here the innermost stride may be
 * anything. */
typedef struct bp_unary_args {
  uint64_t size;
  bp_tensor x;
  bp_tensor out;
} bp_unary_args;

/* The k largest of each row, largest first; of equal ones the lowest index first. NaN counts as smaller than all. */
typedef struct bp_topk_args {
  uint64_t size;
  bp_tensor x;      /* [R,V] */
  bp_tensor ids;    /* i32 [R,k] */
  bp_tensor values; /* as x's type [R,k] */
} bp_topk_args;

/* Draws a token for each row. temperature 0: the largest logit, of equal ones the lowest id. Otherwise the candidates
 * are sorted by logit, of equal ones by id, and the top_k best kept (0: all); p = softmax(logit / temperature) over
 * these, in double. Then the shortest run whose probability reaches top_p is kept (1: all), and of it those with at
 * least min_p times the best one's probability (0: all). Of what is left, with probability sum Z, the first whose
 * cumulated probability exceeds u Z. NaN counts as probability 0; the core has refused a row without any number before.
 * temperature
 * >= 0, 0 < top_p <= 1, 0 <= min_p <= 1, top_k >= 0. u in [0, 1) is ((x1 << 32 | x0) >> 11) / 2^53 with
 * x0..x3 = Philox4x32-10(counter = {c lo, c hi, 0, 0}, key = {seed lo, seed hi}). */
typedef struct bp_sample_args {
  uint64_t size;
  bp_tensor logits;      /* [R,V] */
  bp_tensor temperature; /* f64 [R], as are top_p and min_p */
  bp_tensor top_p;
  bp_tensor min_p;
  bp_tensor top_k;   /* i32 [R] */
  bp_tensor seed;    /* u64 [R] */
  bp_tensor counter; /* u64 [R]: c, the number of the token in its request */
  bp_tensor ids;     /* i32 [R], out */
} bp_sample_args;

/* Puts sampled ids into the token array of a later step, on the device: token[target[r]] = ids[r] where target[r] >= 0.
 */
typedef struct bp_advance_args {
  uint64_t size;
  bp_tensor ids;    /* i32 [R] */
  bp_tensor target; /* i32 [R] */
  bp_tensor token;  /* i32 [T], the token array of that step in its buffer */
} bp_advance_args;

/* sum = a + alpha * b; out = norm(sum). In place when sum is a. */
typedef struct bp_add_norm_args {
  uint64_t size;
  bp_tensor a;
  bp_tensor b;
  bp_tensor sum;
  double alpha;
  const bp_norm_args* norm; /* its x is sum */
} bp_add_norm_args;

/* q = x Wq^T + bq, likewise k and v; q and k are normalized per head where a norm is given, then rotated; k and v go to
 * the cache, q to its tensor. The three matrices may be the parts of one imported weight: then their `weight` is the
 * same. */
typedef struct bp_qkv_args {
  uint64_t size;
  bp_tensor x; /* [T,C] */
  bp_matrix q_weight, k_weight, v_weight;
  bp_tensor q_bias, k_bias, v_bias;
  const bp_norm_args* q_norm; /* or NULL; its x and out are the q below */
  const bp_norm_args* k_norm; /* or NULL; its x and out are write->k */
  const bp_rope_args* rope;   /* or NULL; its x is q below; k is rotated alike */
  /* Its k and v are scratch, always there, that the op may use or leave alone. */
  const bp_kv_write_args* write;
  bp_tensor q;                /* [T,Hq,D], out */
  const bp_norm_args* x_norm; /* or NULL, see bp_linear_args */
} bp_qkv_args;

/* out = f(x Wg^T + bg) * (x Wu^T + bu). */
typedef struct bp_gateup_args {
  uint64_t size;
  bp_tensor x; /* [T,C] */
  bp_matrix gate_weight, up_weight;
  bp_tensor gate_bias, up_bias;
  bp_tensor out;              /* [T,F] */
  const bp_glu_args* glu;     /* its gate (the same as out) and up are scratch, always there, to use or leave alone */
  const bp_norm_args* x_norm; /* or NULL, see bp_linear_args */
} bp_gateup_args;

/* The largest of x W^T + bias in each row, as TOPK chooses, but its value is NaN where any in the row is. */
typedef struct bp_head_argmax_args {
  uint64_t size;
  bp_tensor x;      /* [R,H] */
  bp_matrix weight; /* [V,H] */
  bp_tensor bias;   /* [V] or absent */
  bp_tensor ids;    /* i32 [R] */
  bp_tensor values; /* as x's type [R] */
} bp_head_argmax_args;

/* ---------------------------------------------------------------------------------------------------------------- */
/* 10. WEIGHTS: optional as a group. A plugin that implements it owns the layout of the weights it accepts: all uses it
 * declares (LINEAR, EMBED, and fused ops) work on the imported form. Without it, weights come as canonical tensors. */

enum {
  BP_USE_LINEAR = 1 << 0, /* as a matrix of LINEAR and of fused ops */
  BP_USE_EMBED = 1 << 1   /* as a table of EMBED; both for a tied embedding, which is stored once */
};

enum { BP_WEIGHT_TRANSPOSED = 1 << 0 /* the file stores the part as [C,N] */ };

typedef struct bp_weight_part {
  uint64_t size;
  bp_type type;     /* of the file's data */
  uint32_t flags;   /* BP_WEIGHT_*; an unknown one: BP_UNSUPPORTED */
  uint64_t rows;    /* N of this part */
  uint64_t columns; /* C */
} bp_weight_part;

/* A matrix [N,C] whose rows are those of its parts, one after another (q, k and v as one weight, say). */
typedef struct bp_weight_desc {
  uint64_t size;
  uint64_t uses; /* BP_USE_*; an unknown one: BP_UNSUPPORTED */
  const bp_weight_part* parts;
  uint64_t part_count;
  uint64_t part_stride;
  const char* name; /* of the first part in the file, for messages; may be NULL */
} bp_weight_desc;

typedef struct bp_weights_table {
  uint64_t size;
  /* What it would take on the device, packed. BP_UNSUPPORTED with a reason to refuse: the core then dequantizes, or
   * runs the op elsewhere. */
  bp_status (*packed_bytes)(bp_device device, bp_context context, const bp_weight_desc* desc, uint64_t* bytes);
  bp_status (*create)(bp_device device, bp_context context, const bp_weight_desc* desc, bp_weight* weight);
  /* Stored rows [row, row + count) of a part, contiguous; each row once, in any order, from one thread at a time.
   * `data` may go away when the call returns. */
  bp_status (*import_rows)(bp_device device, bp_stream stream, bp_context context, bp_weight weight, uint64_t part,
                           uint64_t row, uint64_t count, const void* data, uint64_t bytes);
  /* After the last row. From here on ops may use the weight. */
  bp_status (*finish)(bp_device device, bp_stream stream, bp_context context, bp_weight weight);
  /* The same bytes again, bit for bit. */
  bp_status (*export_rows)(bp_device device, bp_stream stream, bp_context context, bp_weight weight, uint64_t part,
                           uint64_t row, uint64_t count, void* data, uint64_t bytes);
  void (*destroy)(bp_device device, bp_weight weight);
} bp_weights_table;

/* ---------------------------------------------------------------------------------------------------------------- */
/* 11. KV CACHE: optional as a group. A plugin that implements it owns the layout of K and V, and must then also support
 * KV_WRITE, ATTN_PREFILL and ATTN_DECODE for every layer of the model; otherwise the core keeps canonical pages in host
 * memory. Canonical page of a layer: K[S,Hk,D], then V[S,Hk,Dv]. In F8_E4M3 finite numbers stop at 448. */

typedef struct bp_kv_layer {
  uint64_t size;
  uint32_t kv_heads;  /* Hk */
  uint32_t head_dim;  /* D */
  uint32_t value_dim; /* Dv */
  uint32_t group;
} bp_kv_layer;

typedef struct bp_kv_desc {
  uint64_t size;
  bp_type type;       /* of the elements */
  uint32_t page_size; /* S */
  uint32_t groups;    /* G */
  uint32_t layer_count;
  const uint64_t* pages; /* [G] pages in each group */
  const bp_kv_layer* layers;
  uint64_t layer_stride;
  uint64_t flags; /* none yet; an unknown one: BP_UNSUPPORTED */
} bp_kv_desc;

typedef struct bp_kv_table {
  uint64_t size;
  bp_status (*bytes)(bp_device device, bp_context context, const bp_kv_desc* desc, uint64_t* bytes);
  bp_status (*create)(bp_device device, bp_context context, const bp_kv_desc* desc, bp_kv* kv);
  void (*destroy)(bp_device device, bp_kv kv);
  /* Canonical bytes of `count` pages of one layer: k is [count,S,Hk,D], v is [count,S,Hk,Dv], in the cache's own
   * element type. Ordered on the stream; complete after a sync. Exact unless the plugin stores K and V quantized. */
  bp_status (*export_pages)(bp_device device, bp_stream stream, bp_context context, bp_kv kv, uint32_t layer,
                            const int32_t* pages, uint64_t count, void* k, void* v);
  bp_status (*import_pages)(bp_device device, bp_stream stream, bp_context context, bp_kv kv, uint32_t layer,
                            const int32_t* pages, uint64_t count, const void* k, const void* v);
  /* Pages from[i] of a group to to[i], in all its layers. */
  bp_status (*copy_pages)(bp_device device, bp_stream stream, bp_context context, bp_kv kv, uint32_t group,
                          const int32_t* from, const int32_t* to, uint64_t count);
  /* Optional from here, as a group: pages as they are, exact and fast, for swapping and for files that the same plugin
   * reads again. The tag names the layout: bytes are only given back under the same tag. */
  bp_status (*native_layout)(bp_device device, bp_context context, bp_kv kv, char tag[64]);
  bp_status (*native_page_bytes)(bp_device device, bp_context context, bp_kv kv, uint32_t layer, uint64_t* bytes);
  bp_status (*export_native)(bp_device device, bp_stream stream, bp_context context, bp_kv kv, uint32_t layer,
                             const int32_t* pages, uint64_t count, void* data);
  bp_status (*import_native)(bp_device device, bp_stream stream, bp_context context, bp_kv kv, uint32_t layer,
                             const int32_t* pages, uint64_t count, const void* data);
} bp_kv_table;

/* ---------------------------------------------------------------------------------------------------------------- */
/* 12. GRAPHS: optional as a group. Work enqueued on a stream between begin and end is recorded instead of run, and
 * launched later, any number of times. Every address that the ops were given stays; the contents change. */

typedef struct bp_graph_table {
  uint64_t size;
  bp_status (*capture_begin)(bp_device device, bp_stream stream, bp_context context);
  /* Ends the capture also where it fails: the stream is usable again either way. */
  bp_status (*capture_end)(bp_device device, bp_stream stream, bp_context context, bp_graph* graph);
  bp_status (*launch)(bp_device device, bp_stream stream, bp_context context, bp_graph graph);
  void (*destroy)(bp_device device, bp_graph graph);
} bp_graph_table;

/* ---------------------------------------------------------------------------------------------------------------- */
/* 13. COLLECTIVES: optional as a group. One rank a device, ordered on its stream; element type and count are the same
 * on all ranks. The core slices canonical weights by rank before it imports them. */

typedef struct bp_comm_table {
  uint64_t size;
  /* How long a group's id is: vendors differ from a hundred bytes to some thousand. */
  bp_status (*id_bytes)(bp_device device, bp_context context, uint64_t* bytes);
  /* Made once, by one rank, and carried to the others by the core. */
  bp_status (*unique_id)(bp_device device, bp_context context, void* id, uint64_t bytes);
  bp_status (*create)(bp_device device, bp_context context, const void* id, uint64_t bytes, uint32_t rank,
                      uint32_t world, bp_comm* comm);
  void (*destroy)(bp_device device, bp_comm comm);
  /* In place sum over all ranks. */
  bp_status (*all_reduce)(bp_device device, bp_stream stream, bp_context context, bp_comm comm, const bp_tensor* x);
  /* out holds the ranks' x one after another along the outermost dimension. */
  bp_status (*all_gather)(bp_device device, bp_stream stream, bp_context context, bp_comm comm, const bp_tensor* x,
                          const bp_tensor* out);
  /* out is this rank's part, along the outermost dimension, of the sum of all x. */
  bp_status (*reduce_scatter)(bp_device device, bp_stream stream, bp_context context, bp_comm comm, const bp_tensor* x,
                              const bp_tensor* out);
  bp_status (*send)(bp_device device, bp_stream stream, bp_context context, bp_comm comm, const bp_tensor* x,
                    uint32_t to_rank);
  bp_status (*receive)(bp_device device, bp_stream stream, bp_context context, bp_comm comm, const bp_tensor* out,
                       uint32_t from_rank);
} bp_comm_table;

/* ---------------------------------------------------------------------------------------------------------------- */
/* 14. ENTRY POINT */

/* All tables of a plugin, allocated, zeroed and stamped by the core. A pointer that is NULL or lies outside `size`
 * belongs to a table that this core doesn't know: skip it. */
typedef struct bp_tables {
  uint64_t size;
  bp_driver_table* driver;
  bp_device_table* device;
  bp_buffer_table* buffer;
  bp_stream_table* stream;
  bp_weights_table* weights;
  bp_kv_table* kv;
  bp_graph_table* graph;
  bp_comm_table* comm;
} bp_tables;

/* The one symbol that a plugin of this major version exports. Called once, before anything else; touches no driver and
 * no device. The plugin keeps `host` and fills the tables that it implements. */
typedef bp_status (*bp_plugin_query_fn)(const bp_host* host, bp_context context, bp_tables* tables);
#define BP_ENTRY_POINT backplane_plugin_v1
#define BP_ENTRY_POINT_NAME "backplane_plugin_v1"
BP_EXPORT bp_status backplane_plugin_v1(const bp_host* host, bp_context context, bp_tables* tables);

/* What no later version may change. */
#ifdef __cplusplus
#define BP_STATIC_ASSERT(condition) static_assert(condition, #condition)
#else
#define BP_STATIC_ASSERT(condition) _Static_assert(condition, #condition)
#endif
BP_STATIC_ASSERT(sizeof(void*) == 8);
BP_STATIC_ASSERT(sizeof(bp_type_set) == 32);
BP_STATIC_ASSERT(sizeof(bp_tensor) == 88);
BP_STATIC_ASSERT(offsetof(bp_tensor, shape) == 24 && offsetof(bp_tensor, stride) == 56);
BP_STATIC_ASSERT(sizeof(bp_matrix) == 96);
BP_STATIC_ASSERT(offsetof(bp_host, fail) == 32 && offsetof(bp_host, query_extension) == 56);
BP_STATIC_ASSERT(offsetof(bp_driver_table, count) == 32 && offsetof(bp_driver_table, describe) == 56);
BP_STATIC_ASSERT(offsetof(bp_device_table, run) == 24 && offsetof(bp_device_table, uncompile) == 64);
BP_STATIC_ASSERT(offsetof(bp_buffer_table, download) == 32 && offsetof(bp_buffer_table, copy) == 56);
BP_STATIC_ASSERT(offsetof(bp_stream_table, sync) == 24 && offsetof(bp_stream_table, event_sync) == 64);
BP_STATIC_ASSERT(offsetof(bp_weights_table, destroy) == 48);
BP_STATIC_ASSERT(offsetof(bp_kv_table, copy_pages) == 48 && offsetof(bp_kv_table, import_native) == 80);
BP_STATIC_ASSERT(offsetof(bp_graph_table, destroy) == 32);
BP_STATIC_ASSERT(offsetof(bp_comm_table, receive) == 72);
BP_STATIC_ASSERT(offsetof(bp_tables, comm) == 64);
BP_STATIC_ASSERT(offsetof(bp_op, args) == 16 && offsetof(bp_op, name) == 56);
BP_STATIC_ASSERT(offsetof(bp_step, token) == 48 && offsetof(bp_step, buffer) == 120);
BP_STATIC_ASSERT(offsetof(bp_caps, activation_type) == 176 && offsetof(bp_caps, memory_free) == 336);
BP_STATIC_ASSERT(offsetof(bp_support, activation_type) == 32);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_PLUGIN_H_ */
