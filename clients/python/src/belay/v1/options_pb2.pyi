from google.protobuf import descriptor_pb2 as _descriptor_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from typing import ClassVar as _ClassVar

DESCRIPTOR: _descriptor.FileDescriptor

class Text(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TEXT_UNSPECIFIED: _ClassVar[Text]
    TEXT_PLAIN: _ClassVar[Text]
    TEXT_WORDS: _ClassVar[Text]
    TEXT_JSON: _ClassVar[Text]
    TEXT_LABELS: _ClassVar[Text]
    TEXT_EXACT: _ClassVar[Text]
    TEXT_SCHEMA: _ClassVar[Text]
    TEXT_VALUE: _ClassVar[Text]
TEXT_UNSPECIFIED: Text
TEXT_PLAIN: Text
TEXT_WORDS: Text
TEXT_JSON: Text
TEXT_LABELS: Text
TEXT_EXACT: Text
TEXT_SCHEMA: Text
TEXT_VALUE: Text
TEXT_FIELD_NUMBER: _ClassVar[int]
text: _descriptor.FieldDescriptor
