"""The URDF text of an arm of three joints with a gripper, whose second finger mimics the first."""

LINK = (
    '<link name="{0}"><inertial><origin xyz="0.1 0.02 0.03" rpy="0.3 0 0.2"/><mass value="{1}"/>'
    '<inertia ixx="0.02" ixy="0" ixz="0.001" iyy="0.03" iyz="0" izz="0.025"/></inertial></link>'
)
JOINT = (
    '<joint name="{0}" type="{1}"><parent link="{2}"/><child link="{3}"/>'
    '<origin xyz="0.3 0 0.1" rpy="0.2 0.1 0"/><axis xyz="{4}"/>'
    '<limit lower="-2" upper="1.5" velocity="3" effort="40"/>{5}</joint>'
)
TEXT = (
    '<robot name="arm"><link name="base"/>'
    + "".join(
        LINK.format(name, mass) for name, mass in (("a", 2), ("b", 1.5), ("c", 1), ("f1", 0.2), ("f2", 0.2))
    )
    + JOINT.format("ja", "revolute", "base", "a", "0 0 1", "")
    + JOINT.format("jb", "revolute", "a", "b", "0.6 0.8 0", "")
    + JOINT.format("jc", "prismatic", "b", "c", "0.6 0 0.8", "")
    + JOINT.format("g1", "prismatic", "c", "f1", "0 1 0", "")
    + JOINT.format("g2", "prismatic", "c", "f2", "0 -1 0", '<mimic joint="g1" multiplier="-2" offset="0.1"/>')
    + "</robot>"
)
