from routing.broker_users import fleet_users, tenant_user

HASH = "0" * 64


def test_a_tenants_user_writes_to_its_own_door_and_reads_nothing() -> None:
    line = tenant_user("acme").line(HASH)
    assert line.startswith(f"user pointsman-tenant-acme reset on #{HASH} -@all resetkeys resetchannels ")
    keys = [word for word in line.split() if "~" in word]
    assert keys
    assert all(key.startswith("%W~") and "intake.acme" in key for key in keys)
    assert "&" not in line


def test_only_workers_hear_what_is_published_and_nobody_may_do_everything() -> None:
    for user in fleet_users():
        words = user.line(HASH).split()
        assert not {"+@all", "~*", "&*", "allkeys", "allcommands", "+keys", "+flushall", "+monitor"} & set(words)
        assert ("+subscribe" in words) == user.name.endswith("-worker")
