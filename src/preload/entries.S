// The functions that libswale_preload.so exports, made of calls.txt: each enters its handler.
//
//   take NAME, HANDLER, NUMBER     a jump to take_HANDLER, which has the C library's signature
//   before NAME, HANDLER, NUMBER   calls before_HANDLER with the arguments as they came, then enters the next
//                                  library's function with all of them: so the signature does not matter, and
//                                  vfork may return twice

#if defined(__x86_64__)

.macro begin name
  .globl \name
  .type \name, @function
  .balign 16
\name:
  .cfi_startproc
  endbr64
.endm

.macro end name
  .cfi_endproc
  .size \name, . - \name
.endm

.macro take name, handler, number
  begin \name
  jmp swale_take_\handler
  end \name
.endm

.macro before name, handler, number
  begin \name
  push %rdi
  .cfi_adjust_cfa_offset 8
  push %rsi
  .cfi_adjust_cfa_offset 8
  push %rdx
  .cfi_adjust_cfa_offset 8
  push %rcx
  .cfi_adjust_cfa_offset 8
  push %r8
  .cfi_adjust_cfa_offset 8
  push %r9
  .cfi_adjust_cfa_offset 8
  push %rax
  .cfi_adjust_cfa_offset 8
  sub $128, %rsp
  .cfi_adjust_cfa_offset 128
  movups %xmm0, (%rsp)
  movups %xmm1, 16(%rsp)
  movups %xmm2, 32(%rsp)
  movups %xmm3, 48(%rsp)
  movups %xmm4, 64(%rsp)
  movups %xmm5, 80(%rsp)
  movups %xmm6, 96(%rsp)
  movups %xmm7, 112(%rsp)
  call swale_before_\handler
  movups (%rsp), %xmm0
  movups 16(%rsp), %xmm1
  movups 32(%rsp), %xmm2
  movups 48(%rsp), %xmm3
  movups 64(%rsp), %xmm4
  movups 80(%rsp), %xmm5
  movups 96(%rsp), %xmm6
  movups 112(%rsp), %xmm7
  add $128, %rsp
  .cfi_adjust_cfa_offset -128
  pop %rax
  .cfi_adjust_cfa_offset -8
  pop %r9
  .cfi_adjust_cfa_offset -8
  pop %r8
  .cfi_adjust_cfa_offset -8
  pop %rcx
  .cfi_adjust_cfa_offset -8
  pop %rdx
  .cfi_adjust_cfa_offset -8
  pop %rsi
  .cfi_adjust_cfa_offset -8
  pop %rdi
  .cfi_adjust_cfa_offset -8
  jmp *(swale_next_calls + 8 * \number)(%rip)
  end \name
.endm

#elif defined(__aarch64__)

.macro begin name
  .globl \name
  .type \name, %function
  .balign 16
\name:
  .cfi_startproc
  hint #34  // bti c
.endm

.macro end name
  .cfi_endproc
  .size \name, . - \name
.endm

.macro take name, handler, number
  begin \name
  b swale_take_\handler
  end \name
.endm

.macro before name, handler, number
  begin \name
  stp x29, x30, [sp, #-224]!
  .cfi_def_cfa_offset 224
  .cfi_offset x29, -224
  .cfi_offset x30, -216
  stp x0, x1, [sp, #16]
  stp x2, x3, [sp, #32]
  stp x4, x5, [sp, #48]
  stp x6, x7, [sp, #64]
  str x8, [sp, #80]
  stp q0, q1, [sp, #96]
  stp q2, q3, [sp, #128]
  stp q4, q5, [sp, #160]
  stp q6, q7, [sp, #192]
  bl swale_before_\handler
  ldp q0, q1, [sp, #96]
  ldp q2, q3, [sp, #128]
  ldp q4, q5, [sp, #160]
  ldp q6, q7, [sp, #192]
  ldr x8, [sp, #80]
  ldp x6, x7, [sp, #64]
  ldp x4, x5, [sp, #48]
  ldp x2, x3, [sp, #32]
  ldp x0, x1, [sp, #16]
  ldp x29, x30, [sp], #224
  .cfi_def_cfa_offset 0
  adrp x16, swale_next_calls + 8 * \number
  add x16, x16, :lo12:swale_next_calls + 8 * \number
  ldr x16, [x16]
  br x16
  end \name
.endm

#else
#error "libswale_preload.so has no entries for this processor: add them here, or build without it"
#endif

.text
.hidden swale_next_calls
#include "calls.inc"
.section .note.GNU-stack, "", %progbits
