#!/bin/bash
# The maps of models/: checkpoints with the names of torchvision and Hugging
# Face (recorded in tests/reference/torch_names.txt.gz) become the tensors of
# the model file, path by path as `dnnc check --parameters` lists it, and come
# back with the same bytes.  Sizes are an eighth of the true ones, so that all
# of it takes seconds; names and ranks are not.
. "$(dirname "$0")/lib.sh"
export LC_ALL=C
names=$work/torch_names
${CC:-cc} -std=gnu11 -O1 -D_GNU_SOURCE -I"$root" -o "$names" \
  "$root/tests/e2e/torch_names.c" "$(dirname "$dnnc")/libdnnrank.a" \
  -lm -ldl -lpthread || fail "cannot compile the helper"
gzip -dc "$root/tests/reference/torch_names.txt.gz" |
  awk '/^== / { file = $2 ".table"; next } { print > file }' || fail "no tables"

# The parameters of the model, in the form in which the helper lists a file; sizes
# are an eighth where the helper makes them so, except H, the number of heads.
parameters_of() {
  "$dnnc" check "$@" --parameters | awk 'match($0, / f32\[[^]]*\]/) {
    n = split(substr($0, RSTART + 5, RLENGTH - 6), dim, ", ")
    line = $1 " f32["
    for (i = 1; i <= n; i++) {
      split(dim[i], part, ":")
      size = part[2]
      if (part[1] != "H" && size >= 16 && size % 8 == 0) size /= 8
      line = line (i > 1 ? ", " : "") size
    }
    print line "]"
  }' | sort
}

round_trip() { # name of the table, map, dims of the map, model and its arguments
  local name=$1 map=$root/models/$2 dims=$3
  shift 3
  rm -rf ours back ours2 back2
  "$names" write "$name.table" theirs.safetensors 8 || fail "$name: cannot write"
  # shellcheck disable=SC2086
  {
    "$dnnc" convert theirs.safetensors --map "$map" $dims -o ours --quiet 2>err &&
      "$dnnc" convert ours --map "$map" $dims -o back --reverse --quiet 2>err &&
      "$dnnc" convert back --map "$map" $dims -o ours2 --quiet 2>err &&
      "$dnnc" convert ours2 --map "$map" $dims -o back2 --reverse --quiet 2>err
  } || { head -n 20 err; fail "$name: convert"; }
  same=$("$names" same theirs.safetensors back/model.safetensors num_batches_tracked) ||
    fail "$name: not the same bytes"
  cmp back/model.safetensors back2/model.safetensors || fail "$name: another file after a round trip"
  cmp ours/model.safetensors ours2/model.safetensors || fail "$name: other parameters after a round trip"
  [ $# = 0 ] && { echo "$name: $same"; return; }
  "$names" list ours/model.safetensors | sort >got
  parameters_of "$root/models/$1" "${@:2}" >wanted
  diff wanted got >difference || { head -n 20 difference; fail "$name: not what $* has"; }
  echo "$name: $same"
}
resnet() { round_trip "$1" resnet-torchvision.map "" resnet50.dnn "${@:2}"; }
vgg() { round_trip "$1" vgg-torchvision.map "" vgg16.dnn "${@:2}"; }
densenet() { round_trip "$1" densenet-torchvision.map "" densenet121.dnn "${@:2}"; }
resnet resnet18 deep=false 'blocks=[2,2,2,2]'
resnet resnet34 deep=false
resnet resnet50
resnet resnet101 'blocks=[3,4,23,3]'
resnet resnet152 'blocks=[3,8,36,3]'
resnet wide_resnet50_2 wide=2
for bn in "" _bn; do
  flag=bn=false
  [ -n "$bn" ] && flag=bn=true
  vgg vgg11$bn $flag 'depths=[1,1,2,2,2]'
  vgg vgg13$bn $flag 'depths=[2,2,2,2,2]'
  vgg vgg16$bn $flag
  vgg vgg19$bn $flag 'depths=[2,2,4,4,4]'
done
densenet densenet121
densenet densenet161 growth=48 'depths=[6,12,36,24]'
densenet densenet169 'depths=[6,12,32,32]'
densenet densenet201 'depths=[6,12,48,32]'
round_trip alexnet alexnet-torchvision.map "" alexnet.dnn
round_trip mobilenet_v2 mobilenet_v2-torchvision.map "" mobilenet_v2.dnn
round_trip squeezenet1_0 squeezenet-torchvision.map "" squeezenet.dnn
round_trip googlenet googlenet-torchvision.map "" googlenet.dnn
round_trip googlenet_no_aux googlenet-torchvision.map "" googlenet.dnn aux=false
round_trip inception_v3 inception_v3-torchvision.map "" inception_v3.dnn
round_trip inception_v3_no_aux inception_v3-torchvision.map "" inception_v3.dnn aux=false
round_trip vit_b_16 vit-torchvision.map D=8 vit.dnn
round_trip vit_b_32 vit-torchvision.map D=8 vit.dnn patch=32
round_trip vit_l_16 vit-torchvision.map D=8 vit.dnn C=1024 H=16 L=24
round_trip bert bert-hf.map D=8 bert.dnn L=3
round_trip bert_masked bert-hf.map D=8 bert.dnn L=3 --net masked
round_trip bert_model bert-hf.map D=8 bert.dnn L=3 --net pooled
round_trip gpt2 gpt2-hf.map D=8 gpt2.dnn

# Older files of BERT have other names for the parameters of its norms.
sed 's/LayerNorm.weight/LayerNorm.gamma/; s/LayerNorm.bias/LayerNorm.beta/' bert.table >old.table
"$names" write old.table theirs.safetensors 8
rm -rf ours back
"$dnnc" convert theirs.safetensors --map "$root/models/bert-hf.map" D=8 -o ours --quiet 2>err || { cat err; fail "gamma"; }
"$names" list ours/model.safetensors | sort >got
parameters_of "$root/models/bert.dnn" L=3 | diff - got || fail "gamma: other parameters"

# The published files of GPT-2 have no prefix, and masks that are no parameters.
sed 's/transformer\.//' gpt2.table >old.table
for i in 0 1 2 3 4 5 6 7 8 9 10 11; do echo "F32 h.$i.attn.bias 1 1 8 8"; done >>old.table
"$names" write old.table theirs.safetensors 8
rm -rf ours
"$dnnc" convert theirs.safetensors --map "$root/models/gpt2-hf.map" D=8 -o ours --quiet 2>err || { cat err; fail "gpt2 without a prefix"; }
"$names" list ours/model.safetensors | sort >got
parameters_of "$root/models/gpt2.dnn" | diff - got || fail "gpt2 without a prefix: other parameters"

# The list of gpt2 is that of a checkpoint that its model writes.
gpt2() { "$dnnc" "$1" "$root/models/gpt2.dnn" V=96 C=48 B=1 T=8 L=12 precision.compute=f32 "${@:2}"; }
"$names" tokens tokens.bin 1000 96
gpt2 run --steps 1 save=gpt2.ckpt --quiet --data "$work" \
  'text.x=tokens("tokens.bin")' >/dev/null 2>err || { cat err; fail "gpt2 run"; }
"$names" list gpt2.ckpt/step-00000001/model-00001-of-00001.safetensors | grep -v / | sort >got
gpt2 check --parameters |
  awk 'match($0, / f32\[[^]]*\]/) { type = substr($0, RSTART + 1, RLENGTH - 1); gsub(/[A-Za-z]+:/, "", type); print $1, type }' |
  sort >wanted
[ "$(wc -l <wanted)" = 196 ] || fail "gpt2 has 196 parameters"
diff wanted got || fail "gpt2: another list than its checkpoint has"
exit 0
