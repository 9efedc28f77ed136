"""Named tuples that compiled functions take by their address.

Numba passes a named tuple field by field, seven numbers for an array: functions that call each other with
some hundred arrays would be little but arguments, and take long to compile.  So what compiled code reads
of the fields lies in memory, in words of 8 bytes, and one pointer to them is passed:

    array       where it lies, and its length in each dimension; it is contiguous
    record      where it lies
    number      itself
    tuple       its fields
    None        nothing
"""

import hashlib
import struct
from functools import cache
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import ir
from numba import from_dtype, types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import NativeValue, infer_getattr, lower_getattr_generic, models, register_model, unbox

N = TypeVar("N")
WORD, NUMBER = ir.IntType(64), {int: types.int64, bool: types.boolean, float: types.float64, type(None): types.none}


class Fields(types.Type):
    """The type of a named tuple by address; `places` are those of its fields, in words."""

    def __init__(self, fields: tuple[str, ...], of: tuple[types.Type, ...]) -> None:
        self.fields, self.types, self.places = fields, of, (0, *np.cumsum([_words(each) for each in of]).tolist())
        told = ", ".join(f"{name}: {each}" for name, each in zip(fields, of, strict=True))
        super().__init__(name=f"Fields-{hashlib.sha256(told.encode()).hexdigest()[:16]}")  # names of functions have it


class _ByAddress:
    def __init__(self, named: Any) -> None:
        words: list[int] = []
        self._numba_type_ = _type_of(_lay_out(named, words))
        self._named, self._words = named, np.array(words, dtype=np.int64)
        self.address = self._words.ctypes.data


def by_address(named: N) -> N:
    """What to call a compiled function with, in place of `named`, whose fields stay as they are meanwhile."""
    return cast(N, _ByAddress(named))


def _lay_out(value: Any, words: list[int]) -> Any:
    """Append the words of a value; returns its kind, which is a key of `_type_of`."""
    if isinstance(value, np.ndarray):
        assert value.flags.c_contiguous
        words.append(value.__array_interface__["data"][0])
        words += value.shape
        return value.dtype, value.ndim
    if isinstance(value, tuple):
        return type(value), *[_lay_out(each, words) for each in value]
    if isinstance(value, np.record):
        words.append(np.frombuffer(value, np.int8).ctypes.data)
        return value.dtype
    if value is not None:
        words.append(struct.unpack("q", struct.pack("d", value))[0] if isinstance(value, float) else int(value))
    return type(value)


@cache
def _type_of(kind: Any) -> Any:
    match kind:
        case np.dtype():
            return from_dtype(kind)
        case (np.dtype() as dtype, int(dimensions)):
            return types.Array(from_dtype(dtype), dimensions, "C")
        case (named, *kinds):
            return Fields(named._fields, tuple(map(_type_of, kinds)))
    return NUMBER[kind]


def _words(of: Any) -> int:
    if isinstance(of, Fields):
        return int(of.places[-1])
    return 0 if isinstance(of, types.NoneType) else 1 + (of.ndim if isinstance(of, types.Array) else 0)


@register_model(Fields)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, of: Fields) -> None:
        super().__init__(manager, of, WORD.as_pointer())


@unbox(Fields)
def _unboxed(of: Fields, given: Any, c: Any) -> NativeValue:
    address = c.pyapi.object_getattr_string(given, "address")
    pointer = c.pyapi.long_as_voidptr(address)
    c.pyapi.decref(address)
    return NativeValue(c.builder.bitcast(pointer, WORD.as_pointer()))


@infer_getattr
class _Attributes(AttributeTemplate):
    key = Fields

    def generic_resolve(self, of: Any, name: Any) -> Any:  # type: ignore[override]
        return of.types[of.fields.index(name)] if name in of.fields else None


@lower_getattr_generic(Fields)
def _field(context: Any, builder: Any, of: Fields, pointer: Any, name: str) -> Any:
    place = of.fields.index(name)
    kind, first = of.types[place], of.places[place]

    def word(number: int = 0, of: Any = WORD) -> Any:
        place = builder.gep(pointer, [ir.Constant(WORD, first + number)])
        loaded = builder.load(builder.bitcast(place, of.as_pointer()))
        loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
        return loaded

    if isinstance(kind, types.NoneType):
        return context.get_dummy_value()
    if isinstance(kind, Fields):
        return builder.gep(pointer, [ir.Constant(WORD, first)])
    if isinstance(kind, types.Array):
        data = word(of=context.get_data_type(kind.dtype).as_pointer())
        return _array(context, builder, kind, data, [word(1 + axis) for axis in range(kind.ndim)])
    if isinstance(kind, types.Record):
        return word(of=context.get_value_type(kind))
    if isinstance(kind, types.Float):
        return word(of=ir.DoubleType())
    return builder.icmp_signed("!=", word(), ir.Constant(WORD, 0)) if kind is types.boolean else word()


def _array(context: Any, builder: Any, kind: Any, data: Any, lengths: list[Any]) -> Any:
    item = ir.Constant(WORD, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    strides, items = [item], lengths[-1]
    for length in reversed(lengths[:-1]):
        strides.insert(0, builder.mul(items, item))
        items = builder.mul(items, length)
    model = context.data_model_manager[kind]
    made = ir.Constant(model.get_value_type(), ir.Undefined)
    for name, value in {"data": data, "nitems": items, "itemsize": item}.items():
        made = builder.insert_value(made, value, model.get_field_position(name))
    for name, values in (("shape", lengths), ("strides", strides)):
        for axis, value in enumerate(values):
            made = builder.insert_value(made, value, [model.get_field_position(name), axis])
    return made
