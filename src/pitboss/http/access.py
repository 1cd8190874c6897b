"""Which role may use which route: the one table. A route that is not in it cannot be served."""

from pitboss.model.access import Role

Roles = frozenset[Role]
PUBLIC: Roles = frozenset()
_ADMIN: Roles = frozenset({Role.ADMIN})
_OPERATOR: Roles = _ADMIN | {Role.OPERATOR}
_VIEWER: Roles = _OPERATOR | {Role.VIEWER}
_PRODUCER: Roles = _OPERATOR | {Role.PRODUCER}
_WORKER: Roles = _OPERATOR | {Role.WORKER}
_TYPES: Roles = _PRODUCER | _WORKER
_ANY: Roles = frozenset(Role)

ROLES: dict[tuple[str, str], Roles] = {
    ("GET", "/health"): PUBLIC,
    ("GET", "/livez"): PUBLIC,
    ("GET", "/readyz"): PUBLIC,
    ("POST", "/task-types/register"): _TYPES,
    ("GET", "/task-types"): _ANY,
    ("GET", "/task-types/{name}"): _ANY,
    ("DELETE", "/task-types/{name}"): _OPERATOR,
    ("GET", "/task-types/{name}/scaling"): _ANY,
    ("POST", "/tasks"): _PRODUCER,
    ("POST", "/tasks/bulk"): _PRODUCER,
    ("GET", "/tasks"): _ANY,
    ("GET", "/tasks/{task_id}"): _ANY,
    ("GET", "/tasks/{task_id}/why"): _ANY,
    ("DELETE", "/tasks/{task_id}"): _OPERATOR,
    ("POST", "/tasks/claim"): _WORKER,
    ("POST", "/tasks/complete"): _WORKER,
    ("POST", "/tasks/{task_id}/progress"): _WORKER,
    ("POST", "/tasks/{task_id}/heartbeat"): _WORKER,
    ("POST", "/tasks/{task_id}/complete"): _WORKER,
    ("POST", "/tasks/{task_id}/fail"): _WORKER,
    ("POST", "/tasks/{task_id}/release"): _WORKER,
    ("POST", "/tasks/{task_id}/cancel"): _PRODUCER,
    ("POST", "/tasks/{task_id}/retry"): _OPERATOR,
    ("POST", "/tasks/cancel"): _OPERATOR,
    ("POST", "/tasks/retry"): _OPERATOR,
    ("POST", "/tasks/delete"): _OPERATOR,
    ("POST", "/workers/register"): _WORKER,
    ("POST", "/workers/{worker_id}/heartbeat"): _WORKER,
    ("PUT", "/workers/{worker_id}/status"): _WORKER,
    ("GET", "/workers"): _ANY,
    ("GET", "/workers/{worker_id}"): _ANY,
    ("GET", "/workers/{worker_id}/stats"): _ANY,
    ("GET", "/queues"): _VIEWER,
    ("GET", "/queues/{name}"): _VIEWER,
    ("PATCH", "/queues/{name}"): _OPERATOR,
    ("POST", "/queues/{name}/pause"): _OPERATOR,
    ("POST", "/queues/{name}/resume"): _OPERATOR,
    ("GET", "/managers"): _VIEWER,
    ("POST", "/managers/{session}/drain"): _OPERATOR,
    ("POST", "/managers/{session}/undrain"): _OPERATOR,
    ("POST", "/managers/{session}/stop"): _OPERATOR,
    ("GET", "/worker-pools"): _VIEWER,
    ("POST", "/worker-pools/{name}/scale"): _OPERATOR,
    ("POST", "/worker-pools/{name}/restart"): _OPERATOR,
    ("POST", "/worker-pools/{name}/pause"): _OPERATOR,
    ("POST", "/worker-pools/{name}/resume"): _OPERATOR,
    ("GET", "/resource-pools"): _VIEWER,
    ("GET", "/resource-pools/{name}"): _VIEWER,
    ("PATCH", "/resource-pools/{name}"): _OPERATOR,
    ("POST", "/resource-pools/{name}/members"): _ADMIN,
    ("GET", "/resource-pools/{name}/members/{member}"): _VIEWER,
    ("DELETE", "/resource-pools/{name}/members/{member}"): _ADMIN,
    ("POST", "/resource-pools/{name}/members/{member}/enable"): _OPERATOR,
    ("POST", "/resource-pools/{name}/members/{member}/disable"): _OPERATOR,
    ("GET", "/batches"): _VIEWER | _PRODUCER,
    ("POST", "/batches"): _PRODUCER,
    ("GET", "/batches/{batch_id}"): _VIEWER | _PRODUCER,
    ("DELETE", "/batches/{batch_id}"): _OPERATOR,
    ("POST", "/batches/{batch_id}/{act}"): _OPERATOR,
    ("GET", "/lanes"): _VIEWER,
    ("PUT", "/lanes/{name}"): _OPERATOR,
    ("GET", "/status"): _VIEWER,
    ("GET", "/failures"): _VIEWER,
    ("GET", "/keys"): _ADMIN,
    ("POST", "/keys"): _ADMIN,
    ("DELETE", "/keys/{name}"): _ADMIN,
    ("GET", "/audit"): _ADMIN,
}

# The routes of the original API: they answer without the prefix /api too.
CONTRACT = frozenset(
    {
        ("GET", "/health"),
        ("GET", "/livez"),
        ("GET", "/readyz"),
        ("POST", "/task-types/register"),
        ("GET", "/task-types"),
        ("GET", "/task-types/{name}"),
        ("POST", "/tasks"),
        ("GET", "/tasks"),
        ("GET", "/tasks/{task_id}"),
        ("POST", "/tasks/claim"),
        ("POST", "/tasks/{task_id}/progress"),
        ("POST", "/tasks/{task_id}/complete"),
        ("POST", "/tasks/{task_id}/fail"),
        ("POST", "/workers/register"),
        ("POST", "/workers/{worker_id}/heartbeat"),
        ("PUT", "/workers/{worker_id}/status"),
        ("GET", "/workers"),
        ("GET", "/workers/{worker_id}"),
        ("GET", "/workers/{worker_id}/stats"),
    }
)
