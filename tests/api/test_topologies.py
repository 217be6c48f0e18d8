"""Networks by name, and files that describe networks and nodes."""

from __future__ import annotations

import httpx

from tests.unit.catalog.topology import published


def test_networks_are_listed_with_their_sources(client: httpx.Client) -> None:
    items = client.get("/catalog/networks").json()["items"]
    pod = next(each for each in items if each["network"]["name"] == "llama3-roce")
    assert "arXiv 2407.21783" in pod["source"]
    assert pod["network"]["tiers"][1]["oversubscription"] == 7.0


def test_files_are_read_and_said_and_stored_with_a_cluster(client: httpx.Client) -> None:
    cluster = {"name": "ours", "accelerator": "h100", "num_nodes": 16}
    body = {"files": [published.SLURM_TREE, published.DGX_H100], "cluster": cluster}
    found = client.post("/topologies", json=body).json()
    assert found["read"] == ["Slurm's topology.conf", "nvidia-smi topo -m"]
    assert (found["num_nodes"], found["num_accelerators"]) == (18, 8)
    saved = client.put("/clusters/ours", json=found["cluster"])
    assert saved.status_code == 200
    assert client.get("/clusters/ours").json()["network"] == found["network"]


def test_a_file_of_a_large_cluster_is_read_whole(client: httpx.Client) -> None:
    nodes = [[f"gpu-node-{16 * leaf + number:06d}" for number in range(16)] for leaf in range(64)]
    leaves = [f"SwitchName=leaf{number} Nodes={','.join(names)}" for number, names in enumerate(nodes)]
    text = "\n".join([*leaves, "SwitchName=spine Switches=leaf[0-63]"])
    assert len(text) > 15_000
    found = client.post("/topologies", json={"files": [text]})
    assert (found.status_code, found.json()["num_nodes"]) == (200, 1024)


def test_a_bad_file_is_refused_with_its_line_and_the_nearest(client: httpx.Client) -> None:
    refused = client.post("/topologies", json={"files": ["SwitchName=s0 Node=x"]})
    assert refused.status_code == 422
    assert "line 1" in refused.text
    assert "Nodes" in refused.text


def test_a_cluster_names_its_network_in_its_short_form_and_in_its_description(client: httpx.Client) -> None:
    assert client.get("/clusters/h100:64@torus-3d").json()["network"]["torus"] == [2, 2, 2]
    body = {"name": "ours", "accelerator": "h100", "num_nodes": 4, "network": "dgx-superpod"}
    assert client.put("/clusters/ours", json=body).json()["network"]["num_rails"] == 8
    unknown = client.put("/clusters/theirs", json=body | {"name": "theirs", "network": "fat-tree"})
    assert unknown.status_code == 404
    assert "fat-tree-" in unknown.text
