#!/bin/bash
# Image models at reduced size make ten steps: the families that reference.sh
# does not compare with PyTorch.
. "$(dirname "$0")/lib.sh"
steps() { # model, overrides
  local name="$*"
  "$dnnc" run "$root/models/$1.dnn" --quick --no-save --json steps=10 "${@:2}" \
    >out.json 2>out.err || { cat out.err; fail "$name"; }
  [ "$(grep -c '"step":[0-9]*,"loss":[0-9]' out.json)" = 10 ] ||
    fail "$name: not ten steps with a finite loss"
}
steps vgg16 batch=4 side=32 width=4 F=16 K=10 bn=true
steps resnet50 batch=4 side=32 width=8 K=10 deep=false
steps resnet_cifar batch=4
steps unet batch=2 side=32 out=32 width=4 padded=true
steps googlenet batch=2 side=64 K=10 F=16 "optimizer=sgd(lr = 0.001)"
steps squeezenet batch=2 side=64 K=10 "optimizer=sgd(lr = 0.001)"
steps mobilenet_v2 batch=2 side=64 K=10 "optimizer=sgd(lr = 0.001)"
steps densenet121 batch=2 side=32 K=10 growth=4 "depths=[2, 2, 2, 2]"
steps amoebanet batch=2 side=64 K=10 width=32 cells=1 \
  "optimizer=sgd(lr = 0.001)"
