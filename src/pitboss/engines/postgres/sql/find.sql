SELECT {columns} FROM {schema}.tasks WHERE ({condition}) {beyond} ORDER BY id {order} LIMIT %s
