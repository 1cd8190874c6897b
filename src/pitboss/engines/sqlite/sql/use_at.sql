SELECT json_group_array(json_array(pitboss_uses.resource, pitboss_uses.seq, pitboss_uses.at))
FROM json_each(?) AS asked
CROSS JOIN pitboss_uses
WHERE pitboss_uses.resource = asked.value ->> 0 AND pitboss_uses.seq = asked.value ->> 1
