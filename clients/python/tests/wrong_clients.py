"""Clients with a planted fault, which the contract cases have to find."""

import belay
from belay import _requests


class _Stream:
    def __init__(self, stream, keep):
        self._stream = stream
        self._keep = keep

    def __iter__(self):
        return (event for event in self._stream if self._keep(event))


class _DroppingExecution(belay.Execution):
    def events(self, after=None, *, output=False):
        return iter(_Stream(super().events(after, output=output), lambda event: event.sequence != 3))


class DropsAnEvent(belay.Client):
    """Leaves out the third event of each execution."""

    def execution(self, execution):
        found = super().execution(execution)
        return _DroppingExecution(found._transport, found.name)


class _RepeatingExecution(belay.Execution):
    def events(self, after=None, *, output=False):
        for event in super().events(after, output=output):
            yield event
            if event.sequence == 2:
                yield event


class RepeatsAnEvent(belay.Client):
    """Shows the second event of each execution twice."""

    def execution(self, execution):
        found = super().execution(execution)
        return _RepeatingExecution(found._transport, found.name)


class _OldDigestApproval(belay.Approval):
    def _decide(self, decision, reason, key):
        first = OldDigest.digests.setdefault(self.execution, self.digest)
        request = _requests.decide(self.name, first, decision, reason, key)
        return belay.Approval(self._transport, self._transport.call("ApprovalService/DecideApproval", request))


class _OldDigestExecution(belay.Execution):
    def approvals(self, states=("PENDING",)):
        return [_OldDigestApproval(approval._transport, approval.raw) for approval in super().approvals(states)]


class OldDigest(belay.Client):
    """Shows each approval with its digest, and decides all of an execution by the digest of the first one."""

    digests: dict = {}

    def execution(self, execution):
        found = super().execution(execution)
        return _OldDigestExecution(found._transport, found.name)


class RetriesEverything(belay.Client):
    """Sends again what is not safe to send again."""

    def validate(self, plan):
        try:
            return super().validate(plan)
        except belay.UnavailableError:
            return super().validate(plan)


class LosesDigits(belay.Client):
    """Reads whole numbers as doubles."""

    def execution(self, execution):
        found = super().execution(execution)
        return _LossyExecution(found._transport, found.name)


class _LossyExecution(belay.Execution):
    def result(self, timeout=None):
        def lossy(value):
            if isinstance(value, dict):
                return {key: lossy(one) for key, one in value.items()}
            return int(float(value)) if type(value) is int else value

        return lossy(super().result(timeout))
