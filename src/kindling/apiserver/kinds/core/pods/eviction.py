"""``pods/NAME/eviction``: deletes a pod unless a disruption budget forbids it."""

from __future__ import annotations

from kindling.apiserver.registry.context import RequestContext
from kubecore import errors
from kubecore.json import JsonObject, get_int, get_object, get_str
from kubecore.objects.meta import is_condition_true, set_condition
from kubecore.objects.selectors import from_label_selector_object
from kubecore.objects.times import now_rfc3339
from kubecore.resources import POD_DISRUPTION_BUDGETS, PODS

from .binding import SUCCESS

REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
SEVERAL = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
MAX_DISRUPTED_PODS = 2000
"""With more entries than this in status.disruptedPods, evictions are refused."""


async def evict(ctx: RequestContext, eviction: JsonObject) -> JsonObject:
    """Delete the pod ctx.name. Raises NotFound, BadRequest, TooManyRequests, Conflict."""
    name = get_str(eviction, "metadata", "name")
    if name != ctx.name:
        raise errors.bad_request("name in URL does not match name in Eviction object")
    options = dict(get_object(eviction, "deleteOptions"))
    asked = options.pop("dryRun", None) or []
    if asked and ctx.dry_run and asked != ["All"]:
        shown = " ".join(map(str, asked))
        raise errors.plain_internal(
            f"Non-matching dry-run options in request and content: [All] and [{shown}]"
        )
    dry_run = ctx.dry_run or bool(asked)
    pod = ctx.objects.get(PODS, ctx.namespace, ctx.name)
    if pod is None:
        raise errors.not_found(PODS, ctx.name)
    if not _exempt(pod):
        budgets = [budget for budget in _budgets(ctx) if _covers(budget, pod)]
        if len(budgets) > 1:
            raise errors.plain_internal(SEVERAL)
        if budgets and not _unhealthy_is_free(budgets[0], pod):
            await _spend(ctx, budgets[0], dry_run)
    if not dry_run:
        options = await _mark(ctx, options)
    await ctx.objects.delete(PODS, ctx.namespace, ctx.name, options=options or None, dry_run=dry_run)
    return dict(SUCCESS)


async def _mark(ctx: RequestContext, options: JsonObject) -> JsonObject:
    """Tell by a condition that the pod is disrupted, not broken; returns the options to delete it with.

    Failure policies of jobs read this condition. A resourceVersion that the client requires is that of
    the pod before it; the pod that carries it is the one to delete then.
    """
    preconditions = get_object(options, "preconditions")
    wanted = preconditions.get("resourceVersion")

    def mark(pod: JsonObject) -> JsonObject | None:
        metadata = get_object(pod, "metadata")
        if preconditions.get("uid") not in (None, metadata.get("uid")):
            return None  # another pod of this name: the deletion refuses it
        found = metadata.get("resourceVersion")
        if wanted is not None and wanted != found:
            problem = f"the ResourceVersion in the precondition ({wanted}) does not match the "
            problem += f"ResourceVersion in record ({found}). The object might have been modified"
            raise errors.conflict(PODS.kind, ctx.name, problem)
        changed = set_condition(
            pod.setdefault("status", {}).setdefault("conditions", []),
            "DisruptionTarget",
            True,
            "EvictionByEvictionAPI",
            "Eviction API: evicting",
            observed_generation=get_int(metadata, "generation", default=1),
        )
        return pod if changed else None

    marked = await ctx.objects.modify(PODS, ctx.namespace, ctx.name, mark)
    if wanted is None:
        return options
    version = get_str(marked, "metadata", "resourceVersion")
    return {**options, "preconditions": {**preconditions, "resourceVersion": version}}


def _exempt(pod: JsonObject) -> bool:
    """Pods that run nothing cost no availability."""
    finished = get_str(pod, "status", "phase") in ("Succeeded", "Failed", "Pending")
    return finished or bool(get_str(pod, "metadata", "deletionTimestamp"))


def _budgets(ctx: RequestContext) -> list[JsonObject]:
    return list(ctx.objects.list(POD_DISRUPTION_BUDGETS, ctx.namespace))


def _covers(budget: JsonObject, pod: JsonObject) -> bool:
    selector = get_object(budget, "spec").get("selector")
    return selector is not None and from_label_selector_object(selector).matches(
        get_object(pod, "metadata", "labels")
    )


def _unhealthy_is_free(budget: JsonObject, pod: JsonObject) -> bool:
    """Whether an unready pod may be evicted: by the budget's policy, or because enough others are healthy."""
    if is_condition_true(pod, "Ready"):
        return False
    if get_str(budget, "spec", "unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    healthy, desired = (
        get_int(budget, "status", "currentHealthy"),
        get_int(budget, "status", "desiredHealthy"),
    )
    return healthy >= desired > 0


async def _spend(ctx: RequestContext, budget: JsonObject, dry_run: bool) -> None:
    """Take one allowed disruption off the budget, remembering the pod until it is gone."""
    name = get_str(budget, "metadata", "name")

    def take(current: JsonObject) -> JsonObject:
        status = current.setdefault("status", {})
        if get_int(status, "observedGeneration") < get_int(current, "metadata", "generation"):
            raise errors.too_many_requests(
                REFUSED,
                10,
                [
                    {
                        "reason": "DisruptionBudget",
                        "message": f"The disruption budget {name} is still being processed by the server.",
                    }
                ],
            )
        if get_int(status, "disruptionsAllowed") < 0:
            raise errors.forbidden(POD_DISRUPTION_BUDGETS, name, "pdb disruptions allowed is negative")
        disrupted = status.get("disruptedPods") or {}
        if len(disrupted) > MAX_DISRUPTED_PODS:
            raise errors.forbidden(
                POD_DISRUPTION_BUDGETS,
                name,
                "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
            )
        allowed = get_int(status, "disruptionsAllowed")
        if allowed == 0:
            desired, healthy = get_int(status, "desiredHealthy"), get_int(status, "currentHealthy")
            message = f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
            raise errors.too_many_requests(REFUSED, 0, [{"reason": "DisruptionBudget", "message": message}])
        status["disruptionsAllowed"] = allowed - 1
        status["disruptedPods"] = {**disrupted, ctx.name: now_rfc3339()}
        return current

    await ctx.objects.modify(POD_DISRUPTION_BUDGETS, ctx.namespace, name, take, dry_run=dry_run)
