"""Passes of our own in Numba's compiler, which are tested with the versions that `pyproject.toml` admits."""

from typing import Any

from numba.core import ir, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import AnalysisPass, FunctionPass, register_pass
from numba.core.ir_utils import get_definition, guard
from numba.core.typed_passes import IRLegalization, NopythonTypeInference
from numba.core.untyped_passes import InlineClosureLikes

from gearshift.support.compiling.by_address import Fields


@register_pass(mutates_CFG=False, analysis_only=False)
class _IndicesFromZero(FunctionPass):
    """Types the indices of arrays as unsigned, for which no code is made that counts from the end.

    That code took a third of the simulator's time at batches of one.
    """

    _name = "gearshift_indices_from_zero"

    def __init__(self) -> None:
        super().__init__()

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


@register_pass(mutates_CFG=False, analysis_only=False)
class _AbsentFields(FunctionPass):
    """Replaces fields of named tuples that are None by type with None, so that Numba prunes branches on them.

    It prunes branches on arguments alone, and would compile all code of what a plan does not have.
    """

    _name = "gearshift_absent_fields"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        for block in state.func_ir.blocks.values():
            for assign in block.find_insts(ir.Assign):
                if _is_absent(assign.value, state.func_ir, state.args):
                    assign.value = ir.Const(None, assign.loc)
                    state.func_ir._definitions[assign.target.name] = [assign.value]
        return True


def _is_absent(value: Any, func_ir: Any, arguments: Any) -> bool:
    if not isinstance(value, ir.Expr) or value.op != "getattr":
        return False
    source = guard(get_definition, func_ir, value.value)
    kind = arguments[source.index] if isinstance(source, ir.Arg) else None
    if not isinstance(kind, Fields) or value.attr not in kind.fields:
        return False
    return isinstance(kind.types[kind.fields.index(value.attr)], types.NoneType)


def _unsigned(index: Any) -> Any:
    tuples: Any = types.BaseTuple
    if isinstance(index, types.Integer):
        return types.uintp
    if isinstance(index, tuples):
        return tuples.from_types([_unsigned(each) for each in index])
    return index


class _Part(JITCodeLibrary):
    """The code of a function that only compiled code calls: optimised and made machine code in its callers alone."""

    @property
    def codegen(self) -> Any:
        return _NoEnvironment(self._codegen)

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class _NoEnvironment:
    """As Numba's generator of code, for functions whose globals are all constants."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def set_env(self, name: str, environment: Any) -> None:
        pass


@register_pass(mutates_CFG=False, analysis_only=True)
class _InParts(AnalysisPass):
    """Has functions that only compiled code calls compiled as parts of their callers."""

    _name = "gearshift_in_parts"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        if state.flags.no_cpython_wrapper:
            state.library = _Part(state.targetctx.codegen(), state.func_id.func_qualname)
        return False


class Compiler(CompilerBase):
    def define_pipelines(self) -> list[Any]:
        passes: Any = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_AbsentFields, InlineClosureLikes)
        passes.add_pass_after(_IndicesFromZero, NopythonTypeInference)
        passes.add_pass_after(_InParts, IRLegalization)
        passes.finalize()
        return [passes]
