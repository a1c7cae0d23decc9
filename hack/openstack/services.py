"""Runs the services of OpenStack on free ports of this host, with databases and queues in one folder.

services.py FOLDER CACHE prints one line of JSON once they are ready: the URL of Keystone, credentials, and what classes may name. It
runs until it is killed, or its caller ends. Databases with their tables are kept in CACHE for the next run.
"""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
BIN = pathlib.Path(sys.executable).parent
FOLDER = pathlib.Path(sys.argv[1]).resolve()
TABLES = pathlib.Path(sys.argv[2]).resolve() / "tables"
LOGS = FOLDER / "logs"
REGION = "RegionOne"
PASSWORD = "service-password"
APIS = {
    "keystone": "keystone.wsgi.api",
    "placement": "placement.wsgi.api",
    "glance": "glance.wsgi.api",
    "neutron": "neutron.wsgi.api",
    "nova": "nova.wsgi.osapi_compute",
    "cinder": "cinder.wsgi.api",
    "octavia": "octavia.wsgi.api",
}
WORKERS = ["nova-conductor", "nova-scheduler", "nova-compute", "cinder-scheduler", "cinder-volume", "octavia-worker"]
# The type in the catalogue and the path below the port.
CATALOGUE = {
    "placement": ("placement", ""),
    "glance": ("image", ""),
    "neutron": ("network", ""),
    "nova": ("compute", "/v2.1"),
    "cinder": ("block-storage", "/v3/%(project_id)s"),
    "octavia": ("load-balancer", ""),
}
RABBIT = next(pathlib.Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin"))

children = []


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


PORTS = dict(zip([*APIS, "rabbit", "distribution", "names"], free_ports(len(APIS) + 3)))
SOCKET = FOLDER / "mariadb.sock"
AUTH = f"http://127.0.0.1:{PORTS['keystone']}"
ENVIRONMENT = {
    **os.environ,
    "HOME": str(FOLDER),
    "PATH": f"{BIN}:{os.environ['PATH']}",
    "PYTHONPATH": str(HERE / "plugins"),
    "PYTHONWARNINGS": "ignore",
    "OS_NOVA_CONFIG_DIR": str(FOLDER / ".nova"),
    "OS_NOVA_DISABLE_EVENTLET_PATCHING": "true",
    "OS_NEUTRON_CONFIG_DIR": str(FOLDER / ".neutron"),
    "OS_NEUTRON_CONFIG_FILES": "neutron.conf",
    "OS_GLANCE_CONFIG_DIR": str(FOLDER / ".glance"),
    "OS_GLANCE_CONFIG_FILES": "glance-api.conf",
}


def start(name, *command, **environment):
    log = open(LOGS / f"{name}.log", "ab")
    child = subprocess.Popen(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env={**ENVIRONMENT, **environment},
        start_new_session=True,
    )
    children.append((name, child))


def run(name, *command):
    with open(LOGS / f"{name}.log", "ab") as log:
        done = subprocess.run([str(part) for part in command], stdout=log, stderr=log, env=ENVIRONMENT)
    if done.returncode != 0:
        fail(f"{' '.join(str(part) for part in command)} failed", name)


def fail(text, name=None):
    print(f"openstack: {text}", file=sys.stderr)
    if name:
        lines = (LOGS / f"{name}.log").read_text(errors="replace").splitlines()
        print("\n".join(lines[-20:]), file=sys.stderr)
    stop()
    sys.exit(1)


def stop(*_):
    if not children:
        return
    for _, child in reversed(children):
        if child.poll() is None:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    children.clear()
    # The queues leave their name server behind, which ends once it sees that they are gone.
    for _ in range(20):
        if subprocess.run(["epmd", "-port", str(PORTS["names"]), "-kill"], capture_output=True).returncode == 0:
            break
        time.sleep(0.1)


def until(what, check, seconds=180):
    end, reason = time.monotonic() + seconds, ""
    while time.monotonic() < end:
        for name, child in children:
            if child.poll() is not None:
                fail(f"{name} ended while {what} was waited for", name)
        try:
            if check():
                return
        except Exception as error:
            reason = f": {error}"
        time.sleep(0.2)
    fail(f"{what} takes longer than {seconds} s{reason}")


def is_listening(port):
    with socket.create_connection(("127.0.0.1", port), timeout=1):
        return True


def database(name):
    return f"mysql+pymysql://root@localhost/{name}?unix_socket={SOCKET}&charset=utf8"


def write(path, sections):
    path = FOLDER / path
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = []
    for section, options in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {value}" for key, value in options.items()]
    path.write_text("\n".join(lines) + "\n")


def login(user):
    return {
        "auth_url": AUTH,
        "auth_type": "password",
        "username": user,
        "password": PASSWORD,
        "project_name": "service",
        "user_domain_name": "Default",
        "project_domain_name": "Default",
        "region_name": REGION,
    }


def authtoken(user):
    return {**login(user), "www_authenticate_uri": AUTH, "service_token_roles_required": "true", "memcached_servers": ""}


def configure():
    transport = f"rabbit://guest:guest@127.0.0.1:{PORTS['rabbit']}/"
    locks = {"lock_path": FOLDER / "locks"}
    (FOLDER / "locks").mkdir()
    write(".keystone/keystone.conf", {
        "DEFAULT": {"log_file": ""},
        "database": {"connection": database("keystone")},
        "token": {"provider": "fernet"},
        "fernet_tokens": {"key_repository": FOLDER / "fernet"},
        "credential": {"key_repository": FOLDER / "credential"},
    })
    write(".placement/placement.conf", {
        "DEFAULT": {},
        "api": {"auth_strategy": "keystone"},
        "placement_database": {"connection": database("placement")},
        "keystone_authtoken": authtoken("placement"),
    })
    write(".glance/glance-api.conf", {
        "DEFAULT": {"enabled_backends": "files:file", "node_staging_uri": f"file://{FOLDER}/staging"},
        "database": {"connection": database("glance")},
        "glance_store": {"default_backend": "files"},
        "files": {"filesystem_store_datadir": FOLDER / "images"},
        "os_glance_staging_store": {"filesystem_store_datadir": FOLDER / "staging"},
        "os_glance_tasks_store": {"filesystem_store_datadir": FOLDER / "tasks"},
        "keystone_authtoken": authtoken("glance"),
        "paste_deploy": {"flavor": "keystone", "config_file": BIN.parent / "etc/glance/glance-api-paste.ini"},
        "oslo_concurrency": locks,
    })
    write(".neutron/neutron.conf", {
        "DEFAULT": {
            "core_plugin": "ml2",
            "service_plugins": "",
            "auth_strategy": "keystone",
            "transport_url": transport,
            "api_paste_config": BIN.parent / "etc/neutron/api-paste.ini",
            "notify_nova_on_port_status_changes": "false",
            "notify_nova_on_port_data_changes": "false",
            "dhcp_agent_notification": "false",
        },
        "database": {"connection": database("neutron")},
        "keystone_authtoken": authtoken("neutron"),
        "ml2": {
            "type_drivers": "local",
            "tenant_network_types": "local",
            "mechanism_drivers": "mcm",
            "extension_drivers": "port_security",
        },
        "oslo_concurrency": locks,
    })
    shutil.copy(BIN.parent / "etc/nova/api-paste.ini", prepare(".nova"))
    write(".nova/nova.conf", {
        "DEFAULT": {
            "transport_url": transport,
            "compute_driver": "fake.FakeDriver",
            "state_path": FOLDER / "nova",
            "my_ip": "127.0.0.1",
            "host": "localhost",
            "vif_plugging_is_fatal": "false",
            "vif_plugging_timeout": 0,
        },
        "api": {"auth_strategy": "keystone"},
        "api_database": {"connection": database("nova_api")},
        "database": {"connection": database("nova")},
        "keystone_authtoken": authtoken("nova"),
        "service_user": {**login("nova"), "send_service_user_token": "true"},
        "placement": login("placement"),
        "neutron": login("neutron"),
        "glance": {"region_name": REGION, **login("glance")},
        "cinder": {"os_region_name": REGION, "catalog_info": "block-storage::publicURL", **without_region(login("cinder"))},
        "scheduler": {"workers": 1},
        "conductor": {"workers": 1},
        "oslo_concurrency": locks,
    })
    write(".cinder/cinder.conf", {
        "DEFAULT": {
            "transport_url": transport,
            "auth_strategy": "keystone",
            "enabled_backends": "fake",
            "state_path": FOLDER / "cinder",
            "api_paste_config": BIN.parent / "etc/cinder/api-paste.ini",
            "default_volume_type": "ssd",
            "host": "localhost",
            "my_ip": "127.0.0.1",
            "glance_api_servers": f"http://127.0.0.1:{PORTS['glance']}",
            "storage_availability_zone": "nova",
        },
        "fake": {"volume_driver": "mcm_plugins.Volumes", "volume_backend_name": "fake"},
        "database": {"connection": database("cinder")},
        "keystone_authtoken": authtoken("cinder"),
        "service_user": {**login("cinder"), "send_service_user_token": "true"},
        "nova": login("nova"),
        "oslo_concurrency": locks,
    })
    shutil.copy(BIN.parent / "etc/cinder/resource_filters.json", prepare(".cinder"))
    # The controller worker carries changes out, on amphorae that do not exist and so check no certificate.
    (prepare(".octavia") / "ca.pem").touch()
    write(".octavia/octavia.conf", {
        "DEFAULT": {"transport_url": transport, "host": "localhost"},
        "api_settings": {"auth_strategy": "keystone", "enabled_provider_drivers": "amphora:no servers"},
        "database": {"connection": database("octavia")},
        "keystone_authtoken": authtoken("octavia"),
        "service_auth": login("octavia"),
        "oslo_messaging": {"topic": "octavia"},
        "controller_worker": {
            "amphora_driver": "amphora_noop_driver",
            "compute_driver": "compute_noop_driver",
            "network_driver": "network_noop_driver",
            "image_driver": "image_noop_driver",
            "client_ca": FOLDER / ".octavia/ca.pem",
        },
        "certificates": {"cert_manager": "noop_cert_manager"},
    })


def without_region(options):
    return {key: value for key, value in options.items() if key != "region_name"}


def prepare(name):
    path = FOLDER / name
    path.mkdir(parents=True, exist_ok=True)
    return path


def client(statement):
    return ["mariadb", "--no-defaults", f"--socket={SOCKET}", "--user=root", "-e", statement]


def start_database():
    # As root it needs the name of its user.
    user = ["--user=root"] if os.getuid() == 0 else []
    data = FOLDER / "mariadb"
    if TABLES.exists():
        shutil.copytree(TABLES, data)
    else:
        run("mariadb", "mariadb-install-db", "--no-defaults", f"--datadir={data}", "--skip-test-db",
            "--auth-root-authentication-method=normal", *user)
    start("mariadb", "mariadbd", "--no-defaults", *user, f"--datadir={data}", f"--socket={SOCKET}", "--skip-networking",
          f"--pid-file={FOLDER}/mariadb.pid", "--innodb-flush-log-at-trx-commit=0", "--skip-innodb-doublewrite",
          "--max-connections=500", "--skip-log-bin")
    until("the database", lambda: subprocess.run(client("select 1"), capture_output=True).returncode == 0)


def keep_tables():
    """Keeps the databases as they are before anything is in their tables."""
    name, database = children.pop()
    database.terminate()
    database.wait(60)
    TABLES.parent.mkdir(parents=True, exist_ok=True)
    part = TABLES.with_name(f"tables.{os.getpid()}")
    shutil.copytree(FOLDER / name, part)
    try:
        part.rename(TABLES)
    except OSError:
        # Another run was faster.
        shutil.rmtree(part)
    shutil.rmtree(FOLDER / name)
    start_database()


def start_queues():
    start("rabbitmq", RABBIT / "rabbitmq-server",
          RABBITMQ_NODENAME=f"mcm{PORTS['rabbit']}@localhost",
          RABBITMQ_NODE_IP_ADDRESS="127.0.0.1",
          RABBITMQ_NODE_PORT=str(PORTS["rabbit"]),
          RABBITMQ_DIST_PORT=str(PORTS["distribution"]),
          RABBITMQ_MNESIA_BASE=str(FOLDER / "rabbitmq"),
          RABBITMQ_LOG_BASE=str(LOGS),
          RABBITMQ_PID_FILE=str(FOLDER / "rabbitmq.pid"),
          RABBITMQ_ENABLED_PLUGINS_FILE=str(FOLDER / "rabbitmq.plugins"),
          RABBITMQ_CONF_ENV_FILE="/dev/null",
          ERL_EPMD_ADDRESS="127.0.0.1",
          ERL_EPMD_PORT=str(PORTS["names"]))


def migrate():
    names = ["keystone", "placement", "glance", "neutron", "nova_api", "nova", "nova_cell0", "cinder", "octavia"]
    run("mariadb", *client("".join(f"create database {name} character set utf8;" for name in names)))
    for command in [
        ["keystone-manage", "db_sync"],
        ["placement-manage", "db", "sync"],
        ["glance-manage", "--config-file", FOLDER / ".glance/glance-api.conf", "db_sync"],
        ["neutron-db-manage", "--config-file", FOLDER / ".neutron/neutron.conf", "upgrade", "heads"],
        ["nova-manage", "api_db", "sync"],
        ["nova-manage", "cell_v2", "map_cell0", "--database_connection", database("nova_cell0")],
        ["nova-manage", "db", "sync"],
        ["cinder-manage", "db", "sync"],
        ["octavia-db-manage", "upgrade", "head"],
    ]:
        run(command[0], *command)
    run("mariadb", *client("delete from nova_api.cell_mappings"))


def bootstrap():
    """Makes the parts that contain ports and paths of this run."""
    user, group = os.getuid(), os.getgid()
    for keys in ("fernet", "credential"):
        prepare(keys)
        run("keystone-manage", "keystone-manage", f"{keys}_setup", "--keystone-user", user, "--keystone-group", group)
    run("keystone-manage", "keystone-manage", "bootstrap", "--bootstrap-password", PASSWORD, "--bootstrap-region-id", REGION,
        "--bootstrap-public-url", AUTH, "--bootstrap-internal-url", AUTH, "--bootstrap-admin-url", AUTH)
    run("nova-manage", "nova-manage", "cell_v2", "map_cell0", "--database_connection", database("nova_cell0"))
    run("nova-manage", "nova-manage", "cell_v2", "create_cell", "--name", "cell1")


def start_services():
    for name, module in APIS.items():
        if name != "keystone":
            start(name, sys.executable, HERE / "serve.py", module, PORTS[name])
    until("the queues", lambda: is_listening(PORTS["rabbit"]))
    for name in WORKERS:
        start(name, name)
    for name in APIS:
        until(name, lambda: is_listening(PORTS[name]))


def fill():
    """Users, the catalogue, and what classes may name."""
    import openstack

    def connect(user, project, password=PASSWORD, domain="Default"):
        return openstack.connect(
            auth_url=f"{AUTH}/v3", username=user, password=password, project_name=project, user_domain_name=domain,
            project_domain_name=domain, region_name=REGION, compute_api_version="2.1",
        )

    admin = connect("admin", "admin")
    identity = admin.identity
    roles = {role.name: role for role in identity.roles()}
    for name in ("service", "member", "admin"):
        if name not in roles:
            roles[name] = identity.create_role(name=name)
    project = identity.create_project(name="service", domain_id="default")
    for name, (kind, path) in CATALOGUE.items():
        service = identity.create_service(type=kind, name=name)
        url = f"http://127.0.0.1:{PORTS[name]}{path}"
        for interface in ("public", "internal", "admin"):
            identity.create_endpoint(service_id=service.id, interface=interface, url=url, region_id=REGION)
        user = identity.create_user(name=name, password=PASSWORD, domain_id="default", default_project_id=project.id)
        for role in ("admin", "service"):
            identity.assign_project_role_to_user(project, user, roles[role])
    domain = identity.create_domain(name="shoots")
    team = identity.create_project(name="team", domain_id=domain.id)
    user = identity.create_user(name="machines", password="password-top-secret", domain_id=domain.id)
    identity.assign_project_role_to_user(team, user, roles["member"])
    start_services()
    # The catalogue is that of the token.
    admin = connect("admin", "admin")
    until("the hypervisor", lambda: subprocess.run(
        ["nova-manage", "cell_v2", "discover_hosts"], env=ENVIRONMENT, capture_output=True
    ).returncode == 0 and any(admin.compute.hypervisors()))
    until("the volumes", lambda: any(one.state == "up" for one in admin.block_storage.services(binary="cinder-volume")))
    for name, memory in (("m1.small", 512), ("m1.large", 1024), ("m1.impossible", 1 << 22)):
        admin.compute.create_flavor(name=name, ram=memory, vcpus=1, disk=1)
    admin.block_storage.create_type(name="ssd")
    machines = connect("machines", "team", "password-top-secret", "shoots")
    image = admin.image.create_image(
        name="gardenlinux", container_format="bare", disk_format="raw", visibility="public", data=b"\0" * 512,
        validate_checksum=False,
    )
    network = machines.network.create_network(name="shoot-network")
    subnet = machines.network.create_subnet(network_id=network.id, ip_version=4, cidr="10.250.0.0/16", enable_dhcp=False)
    machines.network.create_security_group(name="shoot-group")
    machines.compute.create_keypair(name="operator")
    pool = create_pool(machines.load_balancer, subnet.id)
    application = machines.identity.create_application_credential(machines.current_user_id, "mcm")
    return {
        "authURL": f"{AUTH}/v3",
        "region": REGION,
        "username": "machines",
        "password": "password-top-secret",
        "domainName": "shoots",
        "tenantName": "team",
        "tenantID": team.id,
        "adminPassword": PASSWORD,
        "applicationCredentialID": application.id,
        "applicationCredentialSecret": application.secret,
        "imageID": image.id,
        "networkID": network.id,
        "subnetID": subnet.id,
        "poolID": pool.id,
        "logs": str(LOGS),
    }


def create_pool(octavia, subnet):
    """A pool with a member of another client, and its load balancer, which takes one change at a time. Without a virtual network,
    the worker fails at a deletion after which no member names a subnet."""
    balancer = octavia.create_load_balancer(name="control-plane", vip_subnet_id=subnet)
    octavia.wait_for_load_balancer(balancer.id, interval=1)
    listener = octavia.create_listener(name="control-plane", load_balancer_id=balancer.id, protocol="TCP", protocol_port=6443)
    octavia.wait_for_load_balancer(balancer.id, interval=1)
    pool = octavia.create_pool(name="control-plane", listener_id=listener.id, protocol="TCP", lb_algorithm="ROUND_ROBIN")
    octavia.wait_for_load_balancer(balancer.id, interval=1)
    octavia.create_member(pool, name="other", address="10.250.0.9", protocol_port=6443, subnet_id=subnet)
    octavia.wait_for_load_balancer(balancer.id, interval=1)
    return pool


def main():
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda *_: (stop(), sys.exit(0)))
    LOGS.mkdir(parents=True)
    os.environ.update(ENVIRONMENT)
    try:
        configure()
        start_queues()
        is_new = not TABLES.exists()
        start_database()
        if is_new:
            migrate()
            keep_tables()
        bootstrap()
        start("keystone", sys.executable, HERE / "serve.py", APIS["keystone"], PORTS["keystone"])
        until("Keystone", lambda: urllib.request.urlopen(f"{AUTH}/v3", timeout=5).status == 200)
        print(json.dumps(fill()), flush=True)
        while True:
            for name, child in children:
                if child.poll() is not None:
                    fail(f"{name} ended", name)
            # Its caller closes the input when it ends.
            time.sleep(1)
            if os.getppid() == 1:
                return
    finally:
        stop()


main()
