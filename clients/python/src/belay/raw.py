"""The stubs of the contract as they are generated: `belay.raw.execution_pb2.Execution`, `belay.raw.executor_service_pb2_grpc.ExecutorServiceStub`.

They are the modules of `belay.v1`, so `from belay.v1 import execution_pb2` is the same. `Client.call` sends their messages with the client's credentials.
"""

from belay.v1 import (
    approval_pb2,
    approval_service_pb2,
    approval_service_pb2_grpc,
    artifact_pb2,
    audit_pb2,
    budget_pb2,
    comparison_pb2,
    effect_pb2,
    event_pb2,
    execution_pb2,
    executor_service_pb2,
    executor_service_pb2_grpc,
    explanation_pb2,
    failure_pb2,
    form_pb2,
    model_pb2,
    model_service_pb2,
    model_service_pb2_grpc,
    options_pb2,
    payload_pb2,
    plan_pb2,
    policy_pb2,
    policy_service_pb2,
    policy_service_pb2_grpc,
    receipt_pb2,
    retry_policy_pb2,
    schedule_pb2,
    schedule_service_pb2,
    schedule_service_pb2_grpc,
    timeline_pb2,
    tool_call_pb2,
    tool_pb2,
    trace_context_pb2,
    waiting_reason_pb2,
    watch_pb2,
)

__all__ = [name for name in dir() if "_pb2" in name]
