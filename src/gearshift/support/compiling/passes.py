"""Passes of our own in Numba's compiler, which are tested with the versions that `pyproject.toml` admits."""

from typing import Any

from numba.core import ir, types
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.ir_utils import get_definition, guard
from numba.core.typed_passes import NopythonTypeInference
from numba.core.untyped_passes import InlineClosureLikes


@register_pass(mutates_CFG=False, analysis_only=False)  # type: ignore[no-untyped-call]
class _IndicesFromZero(FunctionPass):
    """Types the indices of arrays as unsigned, for which no code is made that counts from the end.

    That code took a third of the simulator's time at batches of one.
    """

    _name = "gearshift_indices_from_zero"

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def run_pass(self, state: Any) -> bool:
        for block in state.func_ir.blocks.values():
            sets = [each for each in block.body if isinstance(each, ir.SetItem)]
            for used in [*sets, *block.find_exprs("getitem")]:
                signature = state.calltypes[used]
                target, index, *value = signature.args
                if isinstance(target, types.Array):
                    del state.calltypes[used]
                    state.calltypes[used] = signature.replace(args=(target, _unsigned(index), *value))
        return True


@register_pass(mutates_CFG=False, analysis_only=False)  # type: ignore[no-untyped-call]
class _AbsentFields(FunctionPass):
    """Replaces fields of named tuples that are None by type with None, so that Numba prunes branches on them.

    It prunes branches on arguments alone, and would compile all code of what a plan does not have.
    """

    _name = "gearshift_absent_fields"

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def run_pass(self, state: Any) -> bool:
        for block in state.func_ir.blocks.values():
            for assign in block.find_insts(ir.Assign):
                if _is_absent(assign.value, state.func_ir, state.args):
                    assign.value = ir.Const(None, assign.loc)  # type: ignore[no-untyped-call]
                    state.func_ir._definitions[assign.target.name] = [assign.value]
        return True


def _is_absent(value: Any, func_ir: Any, arguments: Any) -> bool:
    if not isinstance(value, ir.Expr) or value.op != "getattr":
        return False
    source = guard(get_definition, func_ir, value.value)  # type: ignore[no-untyped-call]
    kind = arguments[source.index] if isinstance(source, ir.Arg) else None
    named_tuples: Any = types.BaseNamedTuple
    if not isinstance(kind, named_tuples) or value.attr not in kind.fields:
        return False
    return isinstance(kind[kind.fields.index(value.attr)], types.NoneType)


def _unsigned(index: Any) -> Any:
    tuples: Any = types.BaseTuple
    if isinstance(index, types.Integer):
        return types.uintp
    if isinstance(index, tuples):
        return tuples.from_types([_unsigned(each) for each in index])
    return index


class Compiler(CompilerBase):
    def define_pipelines(self) -> list[Any]:
        passes: Any = DefaultPassBuilder.define_nopython_pipeline(self.state)  # type: ignore[no-untyped-call]
        passes.add_pass_after(_AbsentFields, InlineClosureLikes)
        passes.add_pass_after(_IndicesFromZero, NopythonTypeInference)
        passes.finalize()
        return [passes]
