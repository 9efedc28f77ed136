"""Memory that is read before it is needed, so that nothing waits for it."""

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic


def _read_ahead(typing: Any, array: Any, row: Any) -> Any:
    """Bring row `row` of `array`, of two dimensions, into the processor's cache."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        of = context.make_array(signature.args[0])(context, builder, arguments[0])
        stride = builder.extract_value(of.strides, 0)
        begin = builder.bitcast(of.data, ir.IntType(8).as_pointer())
        at = builder.gep(begin, [builder.mul(arguments[1], stride)])
        flag = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [at.type, flag, flag, flag])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [at.type], kind)
        builder.call(prefetch, [at, flag(0), flag(3), flag(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


read_ahead: Any = intrinsic(_read_ahead)
